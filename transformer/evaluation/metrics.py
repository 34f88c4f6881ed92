"""BLEU and chrF2++ by sacreBLEU, with its signatures."""

from collections.abc import Sequence
from typing import Any

from transformer.errors import UserError
from transformer.evaluation.scores import Score, interval_95, resampled

NAMES = ('BLEU', 'chrF2++')


def check_tokenizer(tokenize: str):
  """Raises `UserError` if a tokenizer of sacreBLEU lacks packages."""
  try:
    metric_of('BLEU', tokenize)
  except RuntimeError as error:
    raise UserError(
      f'decode.bleu_tokenize={tokenize} needs more packages; install them with: '
      f'pip install "sacrebleu[{tokenize[:2]}]"'
    ) from error


def corpus_score(
  name: str, translations: Sequence[str], references: Sequence, tokenize: str = '13a'
) -> float:
  """Computes BLEU (Papineni et al., 2002; Post, 2018) or chrF2++ (Popović, 2017) in percent."""
  metric = metric_of(name, tokenize, force=tokenize == 'none')
  return metric.corpus_score(translations, references).score


def score_text(
  name: str,
  translations: Sequence[str],
  references: Sequence[Sequence[str]],
  tokenize: str,
) -> Score:
  """Computes a metric of all sentences, its interval, and that of each sentence by itself.

  BLEU of a sentence uses only the orders of n-grams for which it is long enough.
  """
  # Only this lets sacreBLEU warn of tokenised text.
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


def metric_of(name: str, tokenize: str, force: bool = True, **of_bleu) -> Any:
  """Returns a metric of `NAMES`; only BLEU has a tokenizer, its warning and other arguments."""
  import sacrebleu  # Only scores need it, and a translation without references starts sooner.

  if name == 'BLEU':
    return sacrebleu.BLEU(tokenize=tokenize, force=force, **of_bleu)
  return sacrebleu.CHRF(word_order=2)
