"""The best evaluation of a run, and when a run stops waiting for a better one."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

# Below this BLEU or F1, differences come from a few words that are right by chance.
_LEAST = 1.0


# The key of an evaluation in a history that names another metric, by `train.best_by`.
BEST_BY = 'best_by'
_NAMES = {'bleu': 'BLEU', 'chrf': 'chrF2++', 'f1': 'F1'}
_LOWER_IS_BETTER = ('loss', 'perplexity')


def deciding_metric(evaluation: Mapping[str, Any]) -> tuple[str, float]:
  """Returns the name and the value of the metric that chooses checkpoints.

  The metric is that of the evaluation's `best_by`, or else F1 if there is one, or else BLEU.
  """
  name, metric = _metric(evaluation)
  shown = ' '.join(filter(None, (name, _NAMES.get(metric, metric))))
  return shown, evaluation[_key(name, metric)]


def best_evaluation(evaluations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
  """Returns the evaluation with the best score; a tie goes to the lower loss.

  A loss and a perplexity are better if they are lower, all others if they are higher. All BLEU and
  F1 below 1 count as equal, since they say nothing. If the losses are equal too, the first
  evaluation is the best.

  Args:
    evaluations: each with `valid/bleu` and `valid/loss`, and perhaps with `valid/f1`; BLEU and
      F1 are from 0 to 100. `best_by` names a metric, as `train.best_by`; the loss is then that of
      the same validation set.

  Returns:
    One of them; None if there are none.
  """
  return max(evaluations, key=_rank, default=None)


def best_steps(evaluations: Sequence[Mapping[str, Any]], saved: Sequence[int],
               keep: int) -> set[int]:
  """Returns the steps of the best evaluation now and when the oldest kept checkpoint was saved.

  A run that falls back to one of the latest checkpoints needs the best of that time. The
  two steps differ only if the best is itself one of the latest checkpoints.

  Args:
    evaluations: as for `best_evaluation`, each with its `step`.
    saved: the steps that have a checkpoint.
    keep: how many of the latest checkpoints are kept.
  """
  oldest = sorted(saved)[-keep:][0] if saved else 0
  before = [evaluation for evaluation in evaluations if evaluation['step'] <= oldest]
  return {best['step'] for best in map(best_evaluation, (evaluations, before)) if best}


def is_out_of_patience(evaluations: Sequence[Mapping[str, Any]], patience: int) -> bool:
  """Returns whether the last `patience` evaluations are all no better than the best before them.

  Args:
    evaluations: as for `best_evaluation`, in the order in which they were made.
    patience: `train.patience`; 0 never runs out.
  """
  if not patience or not evaluations:
    return False
  best = evaluations.index(best_evaluation(evaluations))
  return len(evaluations) - 1 - best >= patience


def _metric(evaluation: Mapping[str, Any]) -> tuple[str, str]:
  """Returns the deciding validation set, empty for the first, and the deciding metric."""
  named, _, metric = evaluation.get(BEST_BY, '').rpartition('/')
  return named, metric or ('f1' if 'valid/f1' in evaluation else 'bleu')


def _key(name: str, metric: str) -> str:
  """Returns the key of a metric of a validation set."""
  return '/'.join(filter(None, ('valid', name, metric)))


def _rank(evaluation: Mapping[str, Any]) -> tuple[float, float]:
  """Orders evaluations; NaN comes last."""
  name, metric = _metric(evaluation)
  score, loss = evaluation[_key(name, metric)], evaluation[_key(name, 'loss')]
  if metric in _NAMES:
    score = score if score >= _LEAST else 0.0
  elif metric in _LOWER_IS_BETTER:
    score = -score
  return tuple(-math.inf if math.isnan(number) else number for number in (score, -loss))
