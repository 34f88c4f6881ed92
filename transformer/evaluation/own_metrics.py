"""Metrics of one's own: Python functions that a flag or a config names."""

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from transformer import own_code
from transformer.errors import UserError, type_and_message
from transformer.evaluation.resampling import RESAMPLES, SEED, interval_95


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


class OwnScore(NamedTuple):
  """A score of one's own metric.

  Attributes:
    name: the function's name, or the key in the dict that it returned.
    score: of the whole text.
    sentences: of each translation; None if the function returned one number.
    interval: both ends of the 95 % interval of bootstrap resampling over the sentences, or None.
  """

  name: str
  score: float
  sentences: list[float] | None
  interval: tuple[float, float] | None


def load_metric(spec: str) -> OwnMetric:
  """Imports a metric; its module may lie in the working directory.

  Args:
    spec: MODULE:FUNCTION.

  Raises:
    UserError: there is no such module or function, or the module cannot be imported.
  """
  return OwnMetric(spec, own_code.load(spec, 'metric'))


def own_scores(metric: OwnMetric, sources: Sequence[str], translations: Sequence[str],
               references: Sequence[Sequence[str]]) -> list[OwnScore]:
  """Calls a metric, and returns its scores.

  Args:
    metric: from `load_metric`.
    sources: the sentences that were translated.
    translations: one for each source.
    references: one or more sequences, each as long as the sources.

  Raises:
    UserError: the function fails, or returns no finite numbers.
  """
  try:
    found = metric.function(list(sources), list(translations), [list(each) for each in references])
  except (Exception, SystemExit) as error:
    raise UserError(f'the metric {metric.spec} failed: {type_and_message(error)}') from error
  if not isinstance(found, Mapping):
    found = {metric.spec.rpartition(':')[2]: found}
  return [_score(metric, str(name), value, len(translations)) for name, value in found.items()]


def _score(metric: OwnMetric, name: str, value: Any, count: int) -> OwnScore:
  alone = isinstance(value, numbers.Real)
  try:
    sentences = [float(value)] if alone else [float(each) for each in value]
  except (TypeError, ValueError):
    sentences = []
  if (not alone and len(sentences) != count) or not all(map(math.isfinite, sentences)):
    raise UserError(f'the metric {metric.spec} must return a finite number, or one for each of the '
                    f'{count} translations, or a dict of these; {name} is {str(value)[:100]!r}')
  if alone:
    return OwnScore(name, sentences[0], None, None)
  rng, numbered = np.random.default_rng(SEED), np.asarray(sentences)
  means = [numbered[rng.integers(count, size=count)].mean() for _ in range(RESAMPLES)]
  low, high = interval_95(means)
  return OwnScore(name, math.fsum(sentences) / count, sentences, (float(low), float(high)))
