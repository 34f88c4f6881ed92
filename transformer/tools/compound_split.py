"""The paper's BLEU for German, a metric: --metric=transformer.tools.compound_split:bleu."""

import re
from collections.abc import Sequence

_HYPHEN = re.compile(rb'(\S)-(\S)')  # Matches bytes, as the Perl script does.


def bleu(
  sources: Sequence[str],
  translations: Sequence[str],
  references: Sequence[Sequence[str]],
) -> dict[str, float]:
  """Computes BLEU of detokenised German by Moses' tokens, with split compounds, not smoothed.

  Source: `tensor2tensor/utils/get_ende_bleu.sh` of the paper's authors, which calls Moses'
  `multi-bleu.perl`. The script tokenises translations, but not its references, which are tokenised
  already. Here Moses tokenises both.
  """
  import sacrebleu  # Imported here because they take half a second.
  import sacremoses

  # As `tokenizer.perl -l de` did until November 2018, escapes included.
  moses = sacremoses.MosesTokenizer(lang='de')
  split = []
  for side in (translations, *references):
    tokenised = [moses.tokenize(line, return_str=True) for line in side]
    split.append(list(map(split_compounds, tokenised)))
  metric = sacrebleu.BLEU(tokenize='none', force=True, smooth_method='none')
  return {'compound-split': metric.corpus_score(split[0], split[1:]).score}


def split_compounds(line: str) -> str:
  """Splits compounds of tokenised text at their hyphens: `rot-weiß` to `rot ##AT##-##AT## weiß`.

  Matches of bytes do not overlap: of `a-b-c` only `a-b` is split, and `a-ö-c` is split twice.
  """
  return _HYPHEN.sub(rb'\1 ##AT##-##AT## \2', line.encode()).decode()
