"""Metrics of one's own: Python functions that a flag or a config names."""

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from transformer import own_code
from transformer.errors import UserError, type_and_message
from transformer.evaluation.resampling import Score, interval_95, resampled


class OwnMetric(NamedTuple):
  """A function that scores translations.

  Attributes:
    spec: its place, MODULE:FUNCTION.
    function: called with the sources, the translations and the references. Sources and
      translations are lists of lines, references a list of such lists. Returns a number for the
      text, or a number for each translation, whose mean is the score; or a dict of either by name.
  """

  spec: str
  function: Callable[[list[str], list[str], list[list[str]]], Any]


def load_metric(spec: str) -> OwnMetric:
  """Imports the metric MODULE:FUNCTION, as `own_code.load` does."""
  return OwnMetric(spec, own_code.load(spec, 'metric'))


def own_scores(metric: OwnMetric, sources: Sequence[str], translations: Sequence[str],
               references: Sequence[Sequence[str]]) -> list[Score]:
  """Calls a metric, and returns its scores.

  Raises:
    UserError: the function fails, or returns no finite numbers.
  """
  try:
    values = metric.function(list(sources), list(translations), list(map(list, references)))
  except (Exception, SystemExit) as error:
    raise UserError(f'the metric {metric.spec} failed: {type_and_message(error)}') from error
  if not isinstance(values, Mapping):
    values = {metric.spec.rpartition(':')[2]: values}
  return [_score(metric, str(name), value, len(translations)) for name, value in values.items()]


def _score(metric: OwnMetric, name: str, value: Any, count: int) -> Score:
  of_text = isinstance(value, numbers.Real)
  try:
    scores = [float(value)] if of_text else list(map(float, value))
  except (TypeError, ValueError):
    scores = []
  if len(scores) != (1 if of_text else count) or not all(map(math.isfinite, scores)):
    raise UserError(f'the metric {metric.spec} must return a finite number, or one for each of the '
                    f'{count} translations, or a dict of these; {name} is {str(value)[:100]!r}')
  if of_text:
    return Score(name, scores[0], metric.spec)
  return Score(name, math.fsum(scores) / count, metric.spec,
               interval=interval_95(resampled(scores) / count), sentences=scores)
