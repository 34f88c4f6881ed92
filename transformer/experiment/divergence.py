"""Detects training steps whose loss or gradient is not finite."""

import math
from pathlib import Path

import numpy as np

from transformer.data.batch import Batch
from transformer.errors import UserError
from transformer.system import processes
from transformer.system.progress import log_info

BAD_BATCHES = 'bad_batches'
_MAX_WRITTEN = 10  # Maximum number of skipped batches to write, to limit disk usage.


def check_finite_step(
  workdir: Path, allowed: int, step: int, batch: Batch, metrics: dict
) -> bool:
  """Returns True if the training step updated the parameters, False if it was skipped.

  `allowed` is the maximum number of consecutive skipped steps. Raises `UserError` if the loss or
  the gradient is not finite and one more skipped step would exceed that number.
  """
  loss = metrics['loss']
  norm = metrics['gradient_norm']
  if math.isfinite(loss) and math.isfinite(norm):
    return True
  event = f'the loss of step {step} is {loss}, and the norm of its gradient {norm}'
  skips = metrics.get('skips')
  if skips and skips.in_a_row <= allowed:
    note = f'; {_write(workdir, step, batch)}' if skips.total <= _MAX_WRITTEN else ''
    log_info(
      f'{event}; the step was skipped ({skips.in_a_row} in a row, {skips.total} in total){note}'
    )
    return False
  raise UserError(
    f'{event}; this exceeds train.max_consecutive_nonfinite={allowed}; the step was not saved; '
    f'{_write(workdir, step, batch)}; lower the learning rate, lengthen the warm-up, or set '
    'optimizer.clip_norm; if it is the first step, docs/recipes.md shows how to find the operation'
  )


def _write(workdir: Path, step: int, batch: Batch) -> str:
  """Writes a batch in process 0; returns a phrase with its path, for a message."""
  folder = workdir / BAD_BATCHES
  path = folder / f'{step}.npz'
  try:
    if processes.is_first():
      folder.mkdir(parents=True, exist_ok=True)
      np.savez(path, **batch.arrays())
  except OSError as error:
    return f'its batch cannot be written to {folder}: {error.strerror}'
  return f'its batch is in {path}'
