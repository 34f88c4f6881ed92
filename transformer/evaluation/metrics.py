"""BLEU, chrF2++ and TER by sacreBLEU, with its signatures, and the paper's BLEU for German."""

import importlib.metadata
import re
from collections.abc import Iterable, Sequence
from typing import Any

from transformer.errors import UserError
from transformer.evaluation.scores import Score, interval_95, resampled

NAMES = ('BLEU', 'chrF2++', 'TER')
# sacreBLEU's TER takes a second for a line of 100 words, and five for one of 200.
MOST_TER_WORDS = 100
# The usual BLEU protocols of publications, and sacreBLEU's arguments for each.
_PROTOCOLS = {
  '13a': {'tokenize': '13a'},
  'intl': {'tokenize': 'intl'},
  '13a lower-cased': {'tokenize': '13a', 'lowercase': True},
  'none': {'tokenize': 'none'},
}
# Tokenizers for text without spaces between words, whose TER splits Asian characters.
_WITHOUT_SPACES = ('zh', 'ja-mecab', 'ko-mecab', 'char')
_COMPOUND_SPLIT = 'compound-split'
_HYPHEN = re.compile(rb'(\S)-(\S)')  # Matches bytes, as the Perl script does.


def check_tokenizer(tokenize: str):
  """Refuses a tokenizer of sacreBLEU that lacks packages."""
  try:
    metric_of('BLEU', tokenize)
  except RuntimeError as error:
    raise UserError(
      f'decode.bleu_tokenize={tokenize} needs more packages; install them with: '
      f'pip install "sacrebleu[{tokenize[:2]}]"'
    ) from error


def corpus_bleu(
  translations: Sequence[str], references: Sequence[Sequence[str]], tokenize: str = '13a'
) -> Score:
  """Computes cased BLEU with one or more references (Papineni et al., 2002; Post, 2018).

  `tokenize` is `none` for text that is tokenised already. Else sacreBLEU warns of such text.
  """
  return _bleu(tokenize, translations, references, tokenize=tokenize, force=tokenize == 'none')


def corpus_chrf(translations: Sequence[str], references: Sequence[Sequence[str]]) -> float:
  """Computes chrF2++ (Popović, 2017) in percent."""
  return metric_of('chrF2++', '13a').corpus_score(translations, references).score


def score_text(
  name: str, translations: Sequence[str], references: Sequence[Sequence[str]], tokenize: str
) -> Score:
  """Computes a metric of all sentences, its interval, and that of each sentence by itself.

  The metrics are BLEU, chrF2++ and TER (Snover et al., 2006). BLEU of a sentence uses only the
  orders of n-grams for which it is long enough.
  """
  metric = metric_of(name, tokenize, force=tokenize == 'none')
  # Private functions of sacreBLEU 2.6.0, which has no public ones for the counts of a sentence by
  # chrF2++. Its public bootstrap would count again, hold all samples, 100 kB a sentence, and give
  # half the width of the interval only. A test compares all scores with those of public functions.
  counts = metric._extract_corpus_statistics(translations, references)
  whole = metric._aggregate_and_compute(counts)
  samples = [metric._compute_score_from_stats(sums).score for sums in resampled(counts)]
  alone = metric_of(name, tokenize, effective_order=True)
  return Score(
    name,
    whole.score,
    str(metric.get_signature()),
    str(whole),
    interval_95(samples),
    [alone._compute_score_from_stats(sentence).score for sentence in counts],
  )


def too_long_for_ter(
  translations: Sequence[str], references: Sequence[Sequence[str]], tokenize: str
) -> int:
  """Returns how many sentences have more than `MOST_TER_WORDS` words on a side, as TER counts."""
  words = metric_of('TER', tokenize).tokenizer
  return sum(
    any(len(words(line.rstrip()).split()) > MOST_TER_WORDS for line in lines)
    for lines in zip(translations, *references, strict=True)
  )


def other_protocols(
  translations: Sequence[str],
  references: Sequence[Sequence[str]],
  tokenize: str,
  target_language: str,
) -> list[Score]:
  """Computes BLEU by every usual protocol of publications but the one of `tokenize`.

  They differ by up to 1.8 BLEU on one text (Post, 2018), so only scores of the same protocol can
  be compared. A `target_language` of `de` adds the paper's BLEU, which splits compounds.
  """
  # Only the headline lets sacreBLEU warn of tokenised text.
  scores = [
    _bleu(name, translations, references, **arguments)
    for name, arguments in _PROTOCOLS.items()
    if name != tokenize
  ]
  if target_language == 'de':
    scores.append(_compound_split_bleu(translations, references, tokenised=tokenize == 'none'))
  return scores


def metric_of(name: str, tokenize: str, force: bool = True, **of_bleu) -> Any:
  """Returns a metric of `NAMES`; only BLEU has a tokenizer, its warning and other arguments."""
  import sacrebleu  # Only scores need it, and a translation without references starts sooner.

  if name == 'BLEU':
    return sacrebleu.BLEU(tokenize=tokenize, force=force, **of_bleu)
  if name == 'chrF2++':
    return sacrebleu.CHRF(word_order=2)
  asian = tokenize in _WITHOUT_SPACES
  return sacrebleu.TER(normalized=asian, asian_support=asian)


def _bleu(
  name: str,
  translations: Sequence[str],
  references: Sequence[Sequence[str]],
  preprocessing: dict[str, str] | None = None,
  **arguments,
) -> Score:
  """Computes BLEU by sacreBLEU's `arguments`; `preprocessing` has entries for the signature."""
  metric = metric_of('BLEU', **arguments)
  result = metric.corpus_score(translations, references)
  signature = metric.get_signature()
  for key, value in (preprocessing or {}).items():
    signature.update(key, value)
  return Score(name, result.score, str(signature), str(result))


def _compound_split_bleu(
  translations: Sequence[str], references: Sequence[Sequence[str]], tokenised: bool
) -> Score:
  """Computes the paper's BLEU for German: Moses' tokens, split compounds, no smoothing.

  Source: `tensor2tensor/utils/get_ende_bleu.sh` of the paper's authors, which calls Moses'
  `multi-bleu.perl`. The script tokenises translations, but not its references, which are tokenised
  already. Here Moses tokenises both, or neither if they are tokenised already.
  """
  sides = [translations, *references]
  preprocessing = {'tok': _COMPOUND_SPLIT}
  if not tokenised:
    sides = list(map(tokenize_german, sides))
    preprocessing = {
      'tok': f'moses-de+{_COMPOUND_SPLIT}',
      'sacremoses': importlib.metadata.version('sacremoses'),
    }
  split, *references = (list(map(split_compounds, side)) for side in sides)
  return _bleu(
    _COMPOUND_SPLIT, split, references, preprocessing, tokenize='none', smooth_method='none'
  )


def tokenize_german(lines: Iterable[str]) -> list[str]:
  """Tokenises German as Moses' `tokenizer.perl -l de` did until November 2018, escapes included."""
  import sacremoses  # Imported here because it takes half a second.

  moses = sacremoses.MosesTokenizer(lang='de')
  return [moses.tokenize(line, return_str=True) for line in lines]


def split_compounds(line: str) -> str:
  """Splits compounds of tokenised text at their hyphens: `rot-weiß` to `rot ##AT##-##AT## weiß`.

  Matches of bytes do not overlap: of `a-b-c` only `a-b` is split, and `a-ö-c` is split twice.
  """
  return _HYPHEN.sub(rb'\1 ##AT##-##AT## \2', line.encode()).decode()
