"""Checkpoints of a run; the one file that knows Orbax."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from transformer.errors import UserError
from transformer.training.step import TrainState

# What a checkpoint holds the parameters, and their moving average, as.
PARAMS, AVERAGE = 'params', 'average'


def best_evaluation(evaluations: Sequence[dict[str, float]]) -> dict[str, float] | None:
  """The evaluation with the best validation BLEU, the first of equals; None if there is none."""
  return max(evaluations, key=lambda each: each['valid/bleu'], default=None)


class _KeepStep:
  """Orbax's policy to keep one step, which changes from time to time."""

  step: int | None = None

  def should_preserve(self, checkpoints, *, context):
    del context
    return [each.step == self.step for each in checkpoints]


class Checkpoints:
  """The checkpoints under a directory: the latest few and the best.

  A checkpoint holds the parameters, their moving average where a run keeps one,
  the rest of the training state, and the history that decides on patience and on
  the best. It is written to a folder of another name that is renamed when
  complete, so a half-written one is never seen.
  """

  def __init__(self, directory: str | os.PathLike, *, keep: int = 1, read_only: bool = False):
    """Opens the directory.

    Args:
      directory: where `STEP/` folders lie; made if it is to be written to.
      keep: how many of the latest checkpoints to keep, beside the best.
      read_only: for those who only look: nothing is made or cleaned up.
    """
    self._directory = Path(directory).absolute()
    self._best = _KeepStep()
    policies = ocp.checkpoint_managers
    self._manager = ocp.CheckpointManager(self._directory, options=ocp.CheckpointManagerOptions(
        create=not read_only, cleanup_tmp_directories=not read_only,
        preservation_policy=policies.AnyPreservationPolicy([policies.LatestN(keep), self._best])))

  def steps(self) -> list[int]:
    """The steps that have a checkpoint, ascending."""
    return sorted(self._manager.all_steps())

  def best_step(self) -> int | None:
    """The step of the best validation BLEU, or None if no checkpoint was evaluated."""
    steps = self.steps()
    if not steps:
      return None
    evaluations = [each for each in self._history(steps[-1])['evaluations']
                   if each['step'] in steps]
    best = best_evaluation(evaluations)
    return best and best['step']

  def resolve(self, which: str) -> int:
    """The step that `best`, `latest` or a number stands for.

    Raises:
      UserError: there is no such checkpoint.
    """
    steps = self.steps()
    if not steps:
      raise UserError(f'{self._directory} holds no checkpoint; train the run first')
    if which == 'latest':
      return steps[-1]
    if which == 'best':
      # A run that was stopped before its first evaluation has only a latest.
      best = self.best_step()
      return steps[-1] if best is None else best
    if not which.isdecimal() or int(which) not in steps:
      raise UserError(f'checkpoint must be best, latest or one of the steps '
                      f'{", ".join(map(str, steps))}; got {which!r}')
    return int(which)

  def save(self, state: TrainState, history: dict[str, Any]):
    """Starts to write a checkpoint; returns once the state may be changed again.

    Args:
      state: what to save, at its own step.
      history: JSON data to keep with it; its `evaluations`, which have their
        `step` and `valid/bleu`, decide which checkpoint is kept as the best.
    """
    best = best_evaluation(history['evaluations'])
    self._best.step = best and best['step']
    rest = {'step': state.step, 'optimizer': state.optimizer}
    items = {PARAMS: state.params, AVERAGE: state.average, 'rest': rest}
    self._manager.save(int(state.step), args=ocp.args.Composite(
        history=ocp.args.JsonSave(history), **{
            name: ocp.args.StandardSave(item) for name, item in items.items()
            if item is not None}))

  def restore(self, step: int, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
    """Reads a whole checkpoint.

    Args:
      step: one of `steps()`.
      like: a state of `jax.ShapeDtypeStruct` with the shardings to restore to.

    Returns:
      The state and its history.
    """
    rest = {'step': like.step, 'optimizer': like.optimizer}
    items = {PARAMS: like.params, AVERAGE: like.average, 'rest': rest}
    found = self._read(step, history=ocp.args.JsonRestore(), **{
        name: ocp.args.StandardRestore(item) for name, item in items.items() if item is not None})
    return TrainState(found.rest['step'], found.params, found.rest['optimizer'],
                      found.get(AVERAGE)), found.history

  def restore_params(self, step: int, like, item: str = PARAMS):
    """Reads the parameters of a checkpoint, or their moving average, and nothing else of it."""
    return self._read(step, **{item: ocp.args.StandardRestore(like)})[item]

  def average_params(self, steps: list[int], like, item: str = PARAMS):
    """The mean of several checkpoints' parameters (section 6.1), or of their moving averages."""
    total = self.restore_params(steps[0], like, item)
    if len(steps) == 1:
      return total  # Nothing to divide, which would compile a program for every shape.
    for step in steps[1:]:
      total = jax.tree.map(jnp.add, total, self.restore_params(step, like, item))
    return jax.tree.map(lambda leaf: leaf / len(steps), total)

  def _history(self, step: int) -> dict[str, Any]:
    return self._read(step, history=ocp.args.JsonRestore()).history

  def _read(self, step: int, **items):
    try:
      return self._manager.restore(step, args=ocp.args.Composite(**items))
    except Exception as error:  # Orbax and what lies under it raise whatever they met.
      raise UserError(
          f'{self._directory / str(step)} cannot be read, or does not fit the run\'s config.json '
          f'({type(error).__name__}); restore it from a copy, or remove that folder to go on from '
          f'the checkpoint before') from error

  def close(self):
    """Waits until everything is written."""
    self._manager.wait_until_finished()
    self._manager.close()
