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
  interval: tuple[float, float] | None = None  # both ends of the 95 % interval
  sentences: Sequence[float] = ()  # the score of each sentence

  def to_json(self) -> dict[str, Any]:
    """Returns the row of the score in a result."""
    return {
      'name': self.name,
      'score': self.score,
      'interval_95': self.interval,
      'signature': self.signature,
    }


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
  function: Callable[[list[str], list[str], list[list[str]]], Any]


def load_metric(spec: str) -> OwnMetric:
  """Imports the metric MODULE:FUNCTION, as `own_code.load` does."""
  return OwnMetric(spec, own_code.load(spec, 'metric'))


def own_scores(
  metric: OwnMetric,
  sources: Sequence[str],
  translations: Sequence[str],
  references: Sequence[Sequence[str]],
) -> list[Score]:
  """Returns the scores of a metric; refuses one that fails, or returns no finite numbers."""
  with own_code.guarded(f'the metric {metric.spec} failed'):
    values = metric.function(
      list(sources), list(translations), list(map(list, references))
    )
  if not isinstance(values, Mapping):
    values = {metric.spec.rpartition(':')[2]: values}
  return [
    _own_score(metric.spec, str(name), value, len(translations))
    for name, value in values.items()
  ]


def _own_score(spec: str, name: str, value: Any, count: int) -> Score:
  try:
    scores = np.array(value, np.float64)
  except (TypeError, ValueError):
    scores = np.array([])
  if scores.shape not in ((), (count,)) or not np.isfinite(scores).all():
    raise UserError(
      f'the metric {spec} must return a finite number, or one for each of the '
      f'{count} translations, or a dict of these; {name} is {shown(value)}'
    )
  if not scores.shape:
    return Score(name, scores.item(), spec)
  interval = interval_95(resampled(scores) / count)
  return Score(
    name, scores.mean().item(), spec, interval=interval, sentences=scores.tolist()
  )
