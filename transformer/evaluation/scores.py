"""Scores with 95% intervals by bootstrap resampling, and custom metrics."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from transformer import plugins
from transformer.errors import UserError, short_repr

# The number of bootstrap samples and their seed, as in sacreBLEU.
RESAMPLES = 1000
_SEED = 12345


class Score(NamedTuple):
  """A corpus score by one metric; sacreBLEU's metrics range from 0 to 100."""

  name: str
  score: float
  signature: str  # how it was computed
  # sacreBLEU's output line; for BLEU: precisions, brevity penalty and lengths.
  details: str = ''
  interval: tuple | None = None  # both ends of the 95% interval
  sentences: Sequence[float] = ()  # the score of each sentence


def bootstrap_sums(counts: Sequence[Any]) -> np.ndarray:
  """Returns bootstrap sums of per-sentence statistics (Koehn, 2004): [RESAMPLES, ...].

  Uses the same samples as sacreBLEU, and holds one sample at a time in memory.
  """
  rng = np.random.default_rng(_SEED)
  counts = np.asarray(counts)
  return np.stack(
    [rng.choice(counts, len(counts)).sum(axis=0) for _ in range(RESAMPLES)]
  )


def interval_95(scores: Sequence[float]) -> tuple[float, float]:
  """Returns the 95% interval: sample scores nearest to the 2.5th and 97.5th percentiles."""
  return tuple(np.percentile(scores, (2.5, 97.5), method='nearest').tolist())


class CustomMetric(NamedTuple):
  """A custom metric: a function that scores translations, and its MODULE:FUNCTION.

  The function takes a list of sources, a list of translations, and a list of reference lists. It
  returns a corpus score, or one score per translation, whose mean is the corpus score. It may also
  return a dict of either by name.
  """

  spec: str
  function: Callable


def load_metric(spec: str) -> CustomMetric:
  """Imports the metric MODULE:FUNCTION, as `plugins.load` does."""
  return CustomMetric(spec, plugins.load(spec, 'metric'))


def custom_scores(
  metric: CustomMetric,
  sources: Sequence[str],
  translations: Sequence[str],
  references: Sequence[Sequence[str]],
) -> list[Score]:
  """Returns the scores of a custom metric; raises `UserError` if it fails or one is not finite."""
  with plugins.as_user_error(f'the metric {metric.spec} failed'):
    values = metric.function(
      list(sources), list(translations), list(map(list, references))
    )
  if not isinstance(values, Mapping):
    values = {metric.spec.rpartition(':')[2]: values}
  count = len(translations)
  results = []
  for name, value in values.items():
    try:
      scores = np.array(value, np.float64)
    except (TypeError, ValueError):
      scores = np.array([])
    if scores.shape not in ((), (count,)) or not np.isfinite(scores).all():
      raise UserError(
        f'the metric {metric.spec} must return a finite number, or one for each of the '
        f'{count} translations, or a dict of these; {name} is {short_repr(value)}'
      )
    score = Score(str(name), scores.mean().item(), metric.spec)
    if scores.shape:
      interval = interval_95(bootstrap_sums(scores) / count)
      score = score._replace(interval=interval, sentences=scores.tolist())
    results.append(score)
  return results
