"""Looks for numbers that are NaN or infinite, in every update and evaluation, and for jumps."""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.data.batch import Batch
from transformer.errors import UserError
from transformer.training.step import TrainState

BAD_BATCHES = 'bad_batches'
_WRITTEN = 10  # Skipped batches that are written down, so that the disk does not fill up.
# A spike stands this many standard deviations above the mean of about so many updates, and by
# this share of it, lest a loss that hardly moves any more spikes by a hair. The first updates of
# a run, in which the loss falls fast, only fill the window.
_DEVIATIONS, _UPDATES, _SHARE, _FIRST = 6.0, 50, 0.05, 100


def divergence(state: TrainState, evaluation: Mapping[str, float]) -> str | None:
  """What shows that a run has diverged, as far as an evaluation can tell.

  Args:
    state: the training state.
    evaluation: what was just found of it: its `valid/loss`.

  Returns:
    A line that says also what to do; None if the latest update was made, and neither the
    validation loss nor any parameter is NaN or infinite.
  """
  found = []
  skips = jax.device_get(state.skips)
  if skips is not None and skips.in_a_row:
    found.append(f'the last {skips.in_a_row} updates were skipped, {skips.total} of '
                 f'{int(state.step)} in all')
  if not math.isfinite(evaluation['valid/loss']):
    found.append(f'the validation loss is {evaluation["valid/loss"]}')
  if not _are_finite(state.params):
    found.append('there are parameters that are NaN or infinite')
  if not found:
    return None
  return (f'the run seems to have diverged: {", and ".join(found)}; its translations will be of no '
          f'use; train anew in another --workdir with a lower learning rate, a longer warm-up or '
          f'optimizer.clip_norm')


@jax.jit
def _are_finite(params):
  """Whether no parameter is NaN or infinite."""
  return jax.tree.reduce(jnp.logical_and, jax.tree.map(lambda leaf: jnp.isfinite(leaf).all(),
                                                       params))


class Watch:
  """Stops a run at the first number that is none, tells of what is skipped, and of spikes.

  Attributes:
    window: mean and variance of the loss a token over the latest updates, which a
      checkpoint keeps: which losses are spikes is then the same after a resume.
  """

  def __init__(self, window: dict[str, float], allowed: int, workdir: str | os.PathLike,
               say: Callable[[str], None], decode: Callable[[Sequence[int]], str] | None = None,
               writes: bool = True):
    """Gets ready.

    Args:
      window: of an earlier `Watch`, or empty.
      allowed: how many updates in a row may be skipped; 0 if the step skips none.
      workdir: the run's directory, where bad batches are written.
      say: tells people something.
      decode: gives the text of token ids, to be written beside a batch.
      writes: whether bad batches are written by this process, not by another.
    """
    self.window = {'updates': 0, 'mean': 0.0, 'variance': 0.0, 'spiking': False, **window}
    self._allowed = allowed
    self._folder = Path(workdir) / BAD_BATCHES
    self._say = say
    self._decode = decode
    self._writes = writes

  def is_finite(self, step: int, batch: Batch, metrics: dict[str, Any]) -> bool:
    """Whether an update was made; if not, its batch is written down.

    Args:
      step: its number.
      batch: what it was made from.
      metrics: what it reported.

    Raises:
      UserError: its loss or gradient is no finite number, and it was not skipped or
        is one too many in a row.
    """
    if math.isfinite(metrics['loss']) and math.isfinite(metrics['gradient_norm']):
      return True
    found = (f'the loss of step {step} is {metrics["loss"]}, and the norm of its gradient '
             f'{metrics["gradient_norm"]}')
    skips = metrics.get('skips')
    if skips is None or skips.in_a_row > self._allowed:
      many = ('' if skips is None else
              f'; {skips.in_a_row} in a row are more than train.skip_nonfinite={self._allowed}')
      where = self._write(step, batch, metrics)
      raise UserError(f'{found}{many}; nothing of it was saved; {where}; lower the learning rate, '
                      f'lengthen the warm-up, or set optimizer.clip_norm')
    where = f'; {self._write(step, batch, metrics)}' if skips.total <= _WRITTEN else ''
    self._say(f'{found}; it was skipped, {skips.in_a_row} in a row, {skips.total} in all{where}')
    return False

  def is_spike(self, step: int, metrics: dict[str, Any]) -> bool:
    """Whether the loss of an update stands far above those before it; tells of the first in a row.

    Far is `_DEVIATIONS` standard deviations of an exponential window. A spike enters
    the window as the least that is one, so that it does not hide the next; if the
    loss stays high, the window soon follows.
    """
    loss, window = float(metrics['loss']) / max(float(metrics['weight']), 1.0), self.window
    mean, deviation = window['mean'], math.sqrt(window['variance'])
    limit = mean + max(_DEVIATIONS * deviation, _SHARE * abs(mean))
    spike = window['updates'] >= _FIRST and loss > limit
    if spike and not window['spiking']:
      self._say(f'step {step}: the loss jumped to {loss:.3f} a token, from {mean:.3f} ± '
                f'{deviation:.3f} over the {_UPDATES} updates before; the norm of its gradient is '
                f'{float(metrics["gradient_norm"]):.3f}')
    part = max(1.0 / _UPDATES, 1.0 / (window['updates'] + 1))
    change = (limit if spike else loss) - mean
    self.window = {
        'updates': window['updates'] + 1, 'mean': mean + part * change,
        'variance': (1.0 - part) * (window['variance'] + part * change * change),
        'spiking': spike}
    return spike

  def _write(self, step: int, batch: Batch, metrics: dict[str, Any]) -> str:
    """Writes a batch as arrays and as text, and says where it lies."""
    if not self._writes:
      return 'the first process has its batch'
    arrays, text = self._folder / f'{step}.npz', self._folder / f'{step}.json'
    try:
      self._folder.mkdir(parents=True, exist_ok=True)
      np.savez(arrays, **batch._asdict())
      if self._decode is None:
        return f'its batch is in {arrays}'
      numbers = {name: str(metrics[name]) for name in ('loss', 'gradient_norm')}  # JSON has no NaN.
      text.write_text(json.dumps({'step': step, **numbers, 'pairs': list(self._pairs(batch))},
                                 indent=2, ensure_ascii=False) + '\n', encoding='utf-8')
    except OSError as error:
      return f'its batch cannot be written to {self._folder}: {error.strerror}'
    return f'its batch is in {arrays}, and its sentences in {text}'

  def _pairs(self, batch: Batch):
    """The sentences of a batch, by row and by segment."""
    for row, (source, target) in enumerate(zip(batch.source_segments, batch.target_segments,
                                               strict=True)):
      for segment in range(1, int(max(source.max(), target.max())) + 1):
        yield {'row': row, 'segment': segment,
               'source': self._text(batch.source_tokens[row][source == segment]),
               'target': self._text(batch.target_tokens[row][target == segment])}

  def _text(self, ids) -> str:
    try:
      return self._decode(ids)
    except IndexError:
      return f'not all of these are in the vocabulary: {ids.tolist()}'
