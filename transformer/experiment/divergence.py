"""Checks of updates for numbers that are not finite, and for spikes of the loss."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from transformer.data.batch import Batch
from transformer.errors import UserError
from transformer.system import processes
from transformer.system.progress import say

BAD_BATCHES = 'bad_batches'
_WRITTEN = 10  # No more skipped batches are written, so that the disk does not fill up.
# A spike exceeds the mean of the latest losses by this many standard deviations, and also by this
# share of the mean, so that a flat loss has no tiny spikes.
_DEVIATIONS = 6.0
_SHARE = 0.05
_UPDATES = 50  # The approximate number of the latest losses.
_FIRST = (
  100  # The updates at the start of a run, where the loss falls fast, are no spikes.
)


class DivergenceGuard:
  """Stops a run at a loss or gradient that is not finite, and logs skips and spikes.

  A checkpoint keeps `window`, the mean and variance of the loss per token over the latest updates,
  so that a resumed run finds the same spikes.
  """

  def __init__(
    self, window: Mapping[str, float], allowed: int, workdir: str | os.PathLike
  ):
    """Resumes a run with a window, or {}; `allowed` updates in a row may be skipped."""
    self.window = {
      'updates': 0,
      'mean': 0.0,
      'variance': 0.0,
      'spiking': False,
      **window,
    }
    self._allowed = allowed
    self._folder = Path(workdir) / BAD_BATCHES

  def check_update(self, step: int, batch: Batch, metrics: dict[str, Any]) -> bool:
    """Returns True if the update was made, and False if it was skipped, as it may be."""
    loss = metrics['loss']
    norm = metrics['gradient_norm']
    if math.isfinite(loss) and math.isfinite(norm):
      return True
    event = f'the loss of step {step} is {loss}, and the norm of its gradient {norm}'
    skips = metrics.get('skips')
    if skips and skips.in_a_row <= self._allowed:
      where = f'; {self._write(step, batch)}' if skips.total <= _WRITTEN else ''
      say(
        f'{event}; it was skipped, {skips.in_a_row} in a row, {skips.total} in all{where}'
      )
      return False
    raise UserError(
      f'{event}; that is one more in a row than train.skip_nonfinite={self._allowed} skips; '
      f'nothing of it was saved; {self._write(step, batch)}; lower the learning rate, lengthen '
      f'the warm-up, or set optimizer.clip_norm; if it is the first update, docs/recipes.md '
      f'shows how to find the operation'
    )

  def is_spike(self, step: int, metrics: dict[str, Any]) -> bool:
    """Returns whether the loss of an update is a spike; logs the first of several in a row.

    A spike enters the window as the limit itself, so that it does not hide the next one.
    """
    loss = float(metrics['loss']) / max(float(metrics['weight']), 1.0)
    window = self.window
    mean = window['mean']
    deviation = math.sqrt(window['variance'])
    limit = mean + max(_DEVIATIONS * deviation, _SHARE * abs(mean))
    spike = window['updates'] >= _FIRST and loss > limit
    if spike and not window['spiking']:
      say(
        f'step {step}: the loss jumped to {loss:.3f} a token, from {mean:.3f} ± {deviation:.3f} '
        f'over the {_UPDATES} updates before; the norm of its gradient is '
        f'{float(metrics["gradient_norm"]):.3f}'
      )
    part = max(1.0 / _UPDATES, 1.0 / (window['updates'] + 1))
    change = (limit if spike else loss) - mean
    self.window = {
      'updates': window['updates'] + 1,
      'mean': mean + part * change,
      'variance': (1.0 - part) * (window['variance'] + part * change * change),
      'spiking': spike,
    }
    return spike

  def _write(self, step: int, batch: Batch) -> str:
    """Writes a batch in the first process; returns a phrase that says where."""
    path = self._folder / f'{step}.npz'
    try:
      if processes.is_first():
        self._folder.mkdir(parents=True, exist_ok=True)
        np.savez(path, **batch.arrays())
    except OSError as error:
      return f'its batch cannot be written to {self._folder}: {error.strerror}'
    return f'its batch is in {path}'
