"""Training batches whose mixture of corpora changes at given steps."""

import bisect
from collections.abc import Sequence

import numpy as np

from transformer.data.batch import Batch
from transformer.data.batches.training_batches import BatchesByStep, Shape, TrainingBatches
from transformer.data.batches.varied_batches import VariedBatches


def seed_of_stage(seed: int, stage: int) -> int:
  """Returns the seed of a stage's batches. A mixture that comes back thus has another order.

  Args:
    seed: the run's root seed, which is that of the first stage.
    stage: the number of the stage, from 0.
  """
  return int(np.random.SeedSequence((seed, stage)).generate_state(1)[0]) if stage else seed


class StagedBatches(BatchesByStep):
  """The batches of a run by step, from 0; each stage has its own plan and begins a new epoch.

  The batch of step n stays a function of (data, seed, n).

  Attributes:
    shape: the shape of every batch.
  """

  def __init__(self, first_steps: Sequence[int],
               stages: Sequence[TrainingBatches | VariedBatches]):
    """Joins stages.

    Args:
      first_steps: the first step of each stage, ascending, from 0.
      stages: the batches of each stage, all of one shape.
    """
    self._first_steps, self._stages = list(first_steps), list(stages)
    self.shape: Shape = self._stages[0].shape

  def __getitem__(self, step: int) -> Batch:
    """Returns the batch of a step."""
    stage = bisect.bisect_right(self._first_steps, step) - 1
    return self._stages[stage][step - self._first_steps[stage]]
