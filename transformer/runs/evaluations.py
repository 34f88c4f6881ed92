"""The best evaluation of a run, and early stopping by `train.patience`."""

import math
from collections.abc import Mapping, Sequence

# Evaluations in the order of their steps; each has its step and its metrics.
Evaluations = Sequence[Mapping]
# Key in an evaluation whose value is `train.best_by`, if that is set.
BEST_BY = 'best_by'
# Below this score, differences come from a few words that match by chance.
_LEAST = 1.0
_NAMES = {'bleu': 'BLEU', 'chrf': 'chrF2++', 'f1': 'F1'}
_LOWER_IS_BETTER = ('loss', 'perplexity')


def selection_metric(evaluation: Mapping) -> tuple[str, float]:
  """Returns the name and value of the metric that selects checkpoints; by default BLEU."""
  best_by = evaluation.get(BEST_BY) or 'bleu'
  name, _, metric = best_by.rpartition('/')
  return f'{name} {_NAMES.get(metric, metric)}'.lstrip(), evaluation[f'valid/{best_by}']


def best_evaluation(evaluations: Evaluations) -> Mapping | None:
  """Returns the evaluation with the best score; None if there are no evaluations.

  Lower is better for loss and perplexity, higher for all other metrics. BLEU, chrF2++ and F1, from
  0 to 100, are noise below 1, so all scores below 1 count as equal. Ties are broken by the lower
  loss on the same validation set, then by the earlier evaluation.
  """
  return max(evaluations, key=_rank, default=None)


def is_out_of_patience(evaluations: Evaluations, patience: int) -> bool:
  """Returns whether the last `patience` evaluations brought no new best; False if it is 0."""
  # With patience=0, the slice contains all evaluations.
  return (
    bool(evaluations) and best_evaluation(evaluations) not in evaluations[-patience:]
  )


def _rank(evaluation: Mapping) -> tuple[float, ...]:
  """Returns the sort key of an evaluation: the higher, the better; NaN is the worst."""
  best_by = evaluation.get(BEST_BY) or 'bleu'
  name, slash, metric = best_by.rpartition('/')
  score = evaluation[f'valid/{best_by}']
  loss = evaluation[f'valid/{name}{slash}loss']
  if metric in _NAMES:
    score = score if score >= _LEAST else 0.0
  elif metric in _LOWER_IS_BETTER:
    score = -score
  return tuple(-math.inf if math.isnan(value) else value for value in (score, -loss))
