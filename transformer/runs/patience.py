"""The best evaluation of a run, and when a run stops waiting for a better one."""

import math
from collections.abc import Mapping, Sequence

# Below this BLEU or F1, differences come from a few words that are right by chance.
_LEAST = 1.0


def headline(evaluation: Mapping[str, float]) -> tuple[str, float]:
  """Returns the name and the value of what chooses checkpoints: F1 of trees, or else BLEU."""
  if 'valid/f1' in evaluation:
    return 'F1', evaluation['valid/f1']
  return 'BLEU', evaluation['valid/bleu']


def best_evaluation(evaluations: Sequence[Mapping[str, float]]) -> Mapping[str, float] | None:
  """Returns the evaluation with the highest headline; a tie goes to the lower loss.

  All headlines below 1 count as equal, since they say nothing. If the losses are equal
  too, the first evaluation is the best.

  Args:
    evaluations: each with `valid/bleu`, from 0 to 100, and `valid/loss`; of trees also with
      `valid/f1`, from 0 to 100.

  Returns:
    One of them; None if there are none.
  """
  return max(evaluations, key=_rank, default=None)


def best_steps(evaluations: Sequence[Mapping[str, float]], saved: Sequence[int],
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
  before = [each for each in evaluations if each['step'] <= oldest]
  return {best['step'] for best in map(best_evaluation, (evaluations, before)) if best}


def is_out_of_patience(evaluations: Sequence[Mapping[str, float]], patience: int) -> bool:
  """Returns whether the last `patience` evaluations are all no better than the best before them.

  Args:
    evaluations: as for `best_evaluation`, in the order in which they were made.
    patience: `train.patience`; 0 never runs out.
  """
  if not patience or not evaluations:
    return False
  best = evaluations.index(best_evaluation(evaluations))
  return len(evaluations) - 1 - best >= patience


def _rank(evaluation: Mapping[str, float]) -> tuple[float, float]:
  """Orders evaluations; a loss of NaN comes last."""
  (_, score), loss = headline(evaluation), evaluation['valid/loss']
  return (score if score >= _LEAST else 0.0), (-math.inf if math.isnan(loss) else -loss)
