"""Checks of updates for numbers that are not finite."""

import math
from pathlib import Path

import numpy as np

from transformer.data.batch import Batch
from transformer.errors import UserError
from transformer.system import processes
from transformer.system.progress import say

BAD_BATCHES = 'bad_batches'
_WRITTEN = 10  # No more skipped batches are written, so that the disk does not fill up.


def check_update(
  workdir: Path, allowed: int, step: int, batch: Batch, metrics: dict
) -> bool:
  """Returns True if an update was made, and False if it was skipped.

  Raises `UserError` if its loss or gradient is not finite, and it is one more than the `allowed`
  number of such updates in a row.
  """
  loss = metrics['loss']
  norm = metrics['gradient_norm']
  if math.isfinite(loss) and math.isfinite(norm):
    return True
  event = f'the loss of step {step} is {loss}, and the norm of its gradient {norm}'
  skips = metrics.get('skips')
  if skips and skips.in_a_row <= allowed:
    where = f'; {_write(workdir, step, batch)}' if skips.total <= _WRITTEN else ''
    say(
      f'{event}; it was skipped, {skips.in_a_row} in a row, {skips.total} in all{where}'
    )
    return False
  raise UserError(
    f'{event}; that is one more in a row than train.skip_nonfinite={allowed} skips; '
    f'nothing of it was saved; {_write(workdir, step, batch)}; lower the learning rate, lengthen '
    f'the warm-up, or set optimizer.clip_norm; if it is the first update, docs/recipes.md '
    f'shows how to find the operation'
  )


def _write(workdir: Path, step: int, batch: Batch) -> str:
  """Writes a batch in the first process; returns a phrase that says where."""
  folder = workdir / BAD_BATCHES
  path = folder / f'{step}.npz'
  try:
    if processes.is_first():
      folder.mkdir(parents=True, exist_ok=True)
      np.savez(path, **batch.arrays())
  except OSError as error:
    return f'its batch cannot be written to {folder}: {error.strerror}'
  return f'its batch is in {path}'
