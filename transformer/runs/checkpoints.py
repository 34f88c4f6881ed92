"""Reads the checkpoints of a run: the latest, the best, or the mean of several.

Orbax writes checkpoints in a TensorStore format. This module reads them with TensorStore, which
imports ten times as fast as Orbax.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import tensorstore
from absl import logging

from transformer.errors import UserError, is_out_of_memory, short_repr, type_and_message
from transformer.runs import sealing
from transformer.runs.evaluations import best_evaluation
from transformer.runs.run_directory import EVAL_PENDING, check_path

# Checkpoint items that are read outside of training, too.
PARAMS = 'params'
EMA = 'average'
HISTORY = 'history'


class Checkpoints:
  """The folders `STEP/` in a directory: the latest few checkpoints and the best.

  A checkpoint holds the training state, the evaluation history, and a digest of each of its files.
  Every file is verified before any of its data is used.

  Attributes:
    steps: the steps that have a checkpoint, ascending.
  """

  def __init__(self, directory: Path):
    """Opens a directory, and changes nothing in it."""
    check_path(directory)
    self._directory = directory.absolute()
    self._verified = set()
    self.steps = sorted(
      int(path.name) for path in self._directory.glob('*') if path.name.isdecimal()
    )

  def _folder(self, step: int) -> Path:
    return self._directory / str(step)

  def is_eval_pending(self, step: int) -> bool:
    """Returns whether training was stopped at this step, perhaps before its evaluation."""
    return (self._folder(step) / EVAL_PENDING).is_dir()

  def latest_intact(self) -> int | None:
    """Returns the step of the latest intact checkpoint; None if there are no checkpoints.

    Logs a warning for each corrupt checkpoint. Raises `UserError` if all are corrupt.
    """
    for step in reversed(self.steps):
      folder = self._folder(step)
      damage = sealing.find_damage(folder, step)
      if damage is None:
        self._verified.add(step)
        return step
      logging.warning('%s is damaged: %s', folder, damage)
    if self.steps:
      raise UserError(
        f'all checkpoints in {self._directory} are damaged; restore one from a copy, or train '
        'again in a different --workdir'
      )
    return None

  def resolve(self, checkpoint: str) -> int:
    """Returns the step of a checkpoint: `best`, `latest` or a step as text.

    Raises `UserError` if the checkpoint is missing or corrupt.
    """
    if not self.steps:
      raise UserError(f'{self._directory} holds no checkpoint; train the run first')
    step = self.steps[-1] if checkpoint in ('best', 'latest') else None
    if checkpoint == 'best':
      best = best_evaluation(self.history(step)['evaluations'])
      # A run that was stopped before its first evaluation has no best step: use the latest.
      step = best['step'] if best else step
    elif checkpoint.isdecimal():
      step = int(checkpoint)
    if step not in self.steps:
      raise UserError(
        f'checkpoint must be best, latest or one of the steps {", ".join(map(str, self.steps))}; '
        f'got {short_repr(checkpoint)}'
        + (f', whose step {step} is missing' if checkpoint == 'best' else '')
      )
    self._verify(step)
    return step

  def average_params(
    self, steps: list[int], like, sharding=None, item: str = PARAMS
  ) -> Any:
    """Returns parameters with the shapes of `like`: of one step, or the mean of several.

    The mean follows section 6.1 of the paper. `item` is `PARAMS`, or `EMA` for the moving
    average of the parameters.
    """
    total = None
    for step in steps:
      params = self._read(
        step, lambda folder: _read_arrays(folder / item, like, sharding)
      )
      total = params if total is None else jax.tree.map(jnp.add, total, params)
    return (
      total if len(steps) == 1 else jax.tree.map(lambda leaf: leaf / len(steps), total)
    )

  def history(self, step: int) -> dict:
    """Returns only the history of a checkpoint."""
    return self._read(
      step, lambda folder: json.loads((folder / HISTORY / 'metadata').read_bytes())
    )

  def _read(self, step: int, function: Callable[[Path], Any]) -> Any:
    """Verifies a checkpoint, and returns the result of `function(folder)`."""
    folder = self._folder(step)
    try:
      self._verify(step)
      return function(folder)
    except Exception as error:  # Orbax and TensorStore raise many types of errors.
      if is_out_of_memory(error):
        raise
      if not folder.exists():
        raise UserError(
          f'{folder} was deleted in the meantime: a run deletes old checkpoints while it trains; '
          'rerun, or choose a different checkpoint'
        ) from error
      if isinstance(error, UserError):
        raise
      raise UserError(
        f'{folder} is intact, but unreadable or incompatible with config.json '
        f'({type_and_message(error)}); restore it from a copy, or choose a different checkpoint'
      ) from error

  def _verify(self, step: int):
    """Raises `UserError` if a checkpoint does not match its digests; verifies it only once."""
    folder = self._folder(step)
    if step in self._verified:
      return
    if damage := sealing.find_damage(folder, step):
      raise UserError(
        f'{folder} is damaged: {damage}; restore it from a copy, or choose a different checkpoint'
      )
    self._verified.add(step)


def leaves_by_name(arrays) -> dict:
  """Returns the leaves of nested dicts by dotted name."""
  return {
    jax.tree_util.keystr(path, simple=True, separator='.'): leaf
    for path, leaf in jax.tree_util.tree_leaves_with_path(arrays)
  }


def _read_arrays(folder: Path, like, sharding):
  """Returns nested dicts of arrays, read from the TensorStore database that Orbax wrote."""
  store = {'driver': 'ocdbt', 'base': {'driver': 'file', 'path': f'{folder}/'}}
  leaves = leaves_by_name(like)
  opening = [
    tensorstore.open(
      {'driver': 'auto', 'kvstore': {**store, 'path': f'{name}/'}}, open=True, read=True
    )
    for name in leaves
  ]
  opened = [array.result() for array in opening]
  reading = [array.read() for array in opened]
  arrays = [jax.device_put(array.result(), sharding) for array in reading]
  return jax.tree.unflatten(jax.tree.structure(like), arrays)
