"""The evaluations of a run: the best one, and the end of patience."""

import math
from collections.abc import Mapping, Sequence

# The evaluations of a history in their order: the step and the metrics of each.
Evaluations = Sequence[Mapping]
# The key of an evaluation in a history that names another metric, by `train.best_by`.
BEST_BY = 'best_by'
# Below this BLEU or F1, differences come from a few words that are right by chance.
_LEAST = 1.0
_NAMES = {'bleu': 'BLEU', 'chrf': 'chrF2++', 'f1': 'F1'}
_LOWER_IS_BETTER = ('loss', 'perplexity')


def deciding_metric(evaluation: Mapping) -> tuple[str, float]:
  """Returns the name and the value of the metric that chooses checkpoints."""
  best_by = evaluation.get(BEST_BY) or 'bleu'
  name, _, metric = best_by.rpartition('/')
  return f'{name} {_NAMES.get(metric, metric)}'.lstrip(), evaluation[f'valid/{best_by}']


def best_evaluation(evaluations: Evaluations) -> Mapping | None:
  """Returns the evaluation with the best score, or None if there are none.

  A loss and a perplexity are better if they are lower, all others if they are higher. All BLEU and
  F1, from 0 to 100, below 1 count as equal, since they say nothing. A tie goes to the lower loss of
  the same validation set, and then to the first evaluation.
  """
  return max(evaluations, key=_rank, default=None)


def is_out_of_patience(evaluations: Evaluations, patience: int) -> bool:
  """Returns whether the last `patience` evaluations, unless 0, are no better than one before."""
  # With a patience of 0, the slice is all of them.
  return (
    bool(evaluations) and best_evaluation(evaluations) not in evaluations[-patience:]
  )


def _rank(evaluation: Mapping) -> tuple[float, ...]:
  """Orders evaluations; NaN comes last."""
  best_by = evaluation.get(BEST_BY) or 'bleu'
  name, slash, metric = best_by.rpartition('/')
  score = evaluation[f'valid/{best_by}']
  loss = evaluation[f'valid/{name}{slash}loss']
  if metric in _NAMES:
    score = score if score >= _LEAST else 0.0
  elif metric in _LOWER_IS_BETTER:
    score = -score
  return tuple(-math.inf if math.isnan(number) else number for number in (score, -loss))
