"""The paper's BLEU for German, a metric: --metric=transformer.tools.compound_split:bleu."""

import re
from collections.abc import Sequence

_HYPHEN = re.compile(rb'(\S)-(\S)')  # Matches bytes, as the Perl script does.


def bleu(
  sources: Sequence[str],
  translations: Sequence[str],
  references: Sequence[Sequence[str]],
) -> dict[str, float]:
  """Computes unsmoothed BLEU of detokenized German, with Moses tokenization and split compounds.

  Follows the paper's authors' `tensor2tensor/utils/get_ende_bleu.sh`, which calls Moses'
  `multi-bleu.perl`. Their script tokenizes only the translations, since their references are
  already tokenized. Here Moses tokenizes both.
  """
  import sacrebleu  # Imported here because these imports take half a second.
  import sacremoses

  # Same as `tokenizer.perl -l de` until November 2018, escapes included.
  moses = sacremoses.MosesTokenizer(lang='de')
  split = []
  for side in (translations, *references):
    tokenized = [moses.tokenize(line, return_str=True) for line in side]
    split.append(list(map(split_compounds, tokenized)))
  metric = sacrebleu.BLEU(tokenize='none', force=True, smooth_method='none')
  return {'compound-split': metric.corpus_score(split[0], split[1:]).score}


def split_compounds(line: str) -> str:
  """Splits compounds of tokenized text at hyphens: `rot-weiß` to `rot ##AT##-##AT## weiß`.

  Matches are of bytes and do not overlap: in `a-b-c`, only `a-b` is split; `a-ö-c` is split twice.
  """
  return _HYPHEN.sub(rb'\1 ##AT##-##AT## \2', line.encode()).decode()
