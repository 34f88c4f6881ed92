"""Which evaluation of a run is the best, and when a run no longer waits for a better one."""

import math
from collections.abc import Mapping, Sequence

# A BLEU below this is decided by a few words that happen to be right.
_LEAST_BLEU = 1.0


def best_evaluation(evaluations: Sequence[Mapping[str, float]]) -> Mapping[str, float] | None:
  """The evaluation with the highest validation BLEU; of equals, the one with the lowest loss.

  BLEU below 1 says nothing, so all such evaluations count as equal. Of those that are equal
  in loss too, the first is the best.

  Args:
    evaluations: of each its `valid/bleu`, from 0 to 100, and its `valid/loss`.

  Returns:
    One of them; None if there is none.
  """
  return max(evaluations, key=_rank, default=None)


def is_out_of_patience(evaluations: Sequence[Mapping[str, float]], patience: int) -> bool:
  """Whether the last `patience` evaluations are all no better than the best before them.

  Args:
    evaluations: as for `best_evaluation`, in the order in which they were made.
    patience: `train.patience`; 0 never runs out.
  """
  if not patience or not evaluations:
    return False
  best = evaluations.index(best_evaluation(evaluations))
  return len(evaluations) - 1 - best >= patience


def _rank(evaluation: Mapping[str, float]) -> tuple[float, float]:
  """Orders evaluations; what is no number comes last."""
  bleu, loss = evaluation['valid/bleu'], evaluation['valid/loss']
  return (bleu if bleu >= _LEAST_BLEU else 0.0), (-math.inf if math.isnan(loss) else -loss)
