"""BLEU and chrF2++ from sacreBLEU, with signatures."""

from collections.abc import Sequence
from typing import Any

from transformer.errors import UserError
from transformer.evaluation.scores import Score, bootstrap_sums, interval_95

SACREBLEU_METRICS = ('BLEU', 'chrF2++')


def check_tokenizer(tokenize: str):
  """Raises `UserError` if a sacreBLEU tokenizer needs packages that are not installed."""
  try:
    sacrebleu_metric('BLEU', tokenize)
  except RuntimeError as error:
    raise UserError(
      f'decode.bleu_tokenize={tokenize} needs more packages; install them with: '
      f'pip install "sacrebleu[{tokenize[:2]}]"'
    ) from error


def corpus_score(
  name: str, translations: Sequence[str], references: Sequence, tokenize: str = '13a'
) -> float:
  """Returns BLEU (Papineni et al., 2002; Post, 2018) or chrF2++ (Popović, 2017), from 0 to 100."""
  metric = sacrebleu_metric(name, tokenize, force=tokenize == 'none')
  return metric.corpus_score(translations, references).score


def score_with_intervals(
  name: str,
  translations: Sequence[str],
  references: Sequence[Sequence[str]],
  tokenize: str,
) -> Score:
  """Returns the corpus score of a metric, its 95% interval, and the score of each sentence.

  Sentence BLEU uses only n-gram orders for which the sentence is long enough (effective order).
  """
  # Unless the tokenizer is `none`, sacreBLEU warns about tokenized text.
  metric = sacrebleu_metric(name, tokenize, force=tokenize == 'none')
  # Private functions of sacreBLEU 2.6.0, which has no public function for the chrF2++ statistics of
  # a sentence. Its public bootstrap counts again, holds all samples (100 kB per sentence), and
  # returns only half the width of the interval. A test compares all scores with public functions.
  counts = metric._extract_corpus_statistics(translations, references)
  corpus = metric._aggregate_and_compute(counts)
  samples = [
    metric._compute_score_from_stats(sums).score for sums in bootstrap_sums(counts)
  ]
  sentence_metric = sacrebleu_metric(name, tokenize, effective_order=True)
  return Score(
    name,
    corpus.score,
    str(metric.get_signature()),
    str(corpus),
    interval_95(samples),
    [sentence_metric._compute_score_from_stats(row).score for row in counts],
  )


def sacrebleu_metric(
  name: str, tokenize: str, force: bool = True, **bleu_options
) -> Any:
  """Returns a sacreBLEU metric by name; only BLEU uses `tokenize`, `force` and `bleu_options`."""
  import sacrebleu  # Imported here, so that translation without references starts faster.

  if name == 'BLEU':
    return sacrebleu.BLEU(tokenize=tokenize, force=force, **bleu_options)
  return sacrebleu.CHRF(word_order=2)
