"""Scores with 95 % intervals by bootstrap resampling, and metrics of one's own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from transformer import own_code
from transformer.errors import UserError, shown

# As in sacreBLEU: the number of bootstrap samples, and the seed of samples.
RESAMPLES = 1000
_SEED = 12345


class Score(NamedTuple):
  """The score of a text by a metric; percent for sacreBLEU's metrics."""

  name: str
  score: float
  signature: str  # how it was computed
  # SacreBLEU's line; of BLEU: precisions, brevity penalty and lengths.
  details: str = ''
  interval: tuple | None = None  # both ends of the 95 % interval
  sentences: Sequence[float] = ()  # the score of each sentence


def resampled(counts: Sequence[Any]) -> np.ndarray:
  """Returns the sums of what is counted in each sentence over bootstrap samples (Koehn, 2004).

  The samples are those of sacreBLEU, one at a time in memory. The sums are the first axis.
  """
  rng = np.random.default_rng(_SEED)
  counts = np.asarray(counts)
  return np.stack(
    [rng.choice(counts, len(counts)).sum(axis=0) for _ in range(RESAMPLES)]
  )


def interval_95(scores: Sequence[float]) -> tuple[float, float]:
  """Returns both ends of the 95 % interval of samples' scores: the scores of two of them."""
  return tuple(np.percentile(scores, (2.5, 97.5), method='nearest').tolist())


class OwnMetric(NamedTuple):
  """A function that scores translations, and its place, MODULE:FUNCTION.

  It is called with lists of sources and of translations, and a list of such lists of references.
  It returns a number for the text, or a number for each translation, whose mean is the score; or
  a dict of either by name.
  """

  spec: str
  function: Callable


def load_metric(spec: str) -> OwnMetric:
  """Imports the metric MODULE:FUNCTION, as `own_code.load` does."""
  return OwnMetric(spec, own_code.load(spec, 'metric'))


def own_scores(
  metric: OwnMetric,
  sources: Sequence[str],
  translations: Sequence[str],
  references: Sequence[Sequence[str]],
) -> list[Score]:
  """Returns the scores of a metric; raises `UserError` if it fails or a number is not finite."""
  with own_code.guarded(f'the metric {metric.spec} failed'):
    values = metric.function(
      list(sources), list(translations), list(map(list, references))
    )
  if not isinstance(values, Mapping):
    values = {metric.spec.rpartition(':')[2]: values}
  count = len(translations)
  found = []
  for name, value in values.items():
    try:
      scores = np.array(value, np.float64)
    except (TypeError, ValueError):
      scores = np.array([])
    if scores.shape not in ((), (count,)) or not np.isfinite(scores).all():
      raise UserError(
        f'the metric {metric.spec} must return a finite number, or one for each of the '
        f'{count} translations, or a dict of these; {name} is {shown(value)}'
      )
    score = Score(str(name), scores.mean().item(), metric.spec)
    if scores.shape:
      interval = interval_95(resampled(scores) / count)
      score = score._replace(interval=interval, sentences=scores.tolist())
    found.append(score)
  return found
