"""The checkpoints of a run: saving and restoring them, the best one, and damaged ones."""

import copy
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from transformer.errors import UserError, is_out_of_memory, type_and_message
from transformer.runs import digests
from transformer.runs.averages import keep_mean
from transformer.runs.orbax_store import OrbaxStore
from transformer.runs.patience import best_evaluation, deciding_metric
from transformer.runs.run_directory import check_path
from transformer.system import processes
from transformer.training.step import TrainState

# The parts of a checkpoint. The rest is the number of updates and the optimizer's state.
PARAMS, AVERAGE, SKIPS, _REST = 'params', 'average', 'skips', 'rest'


class Checkpoints:
  """The checkpoints under a directory: the latest few and the best.

  A checkpoint holds the training state and the history of evaluations, which decides on
  patience and on the best checkpoint. It also holds a digest of each of its files. Every
  byte is compared with its digest before anything is used.
  """

  def __init__(self, directory: str | os.PathLike, *, keep: int = 1, read_only: bool = False):
    """Opens the directory.

    Args:
      directory: the parent of the folders `STEP/`; created unless `read_only`.
      keep: how many of the latest checkpoints to keep, in addition to the best.
      read_only: create and delete nothing.

    Raises:
      UserError: as `check_path`.
    """
    check_path(directory)
    self._directory = Path(directory).absolute()
    self._verified: set[int] = set()
    self._store = OrbaxStore(self._directory, keep, read_only)

  def steps(self) -> list[int]:
    """The steps that have a checkpoint, ascending."""
    return self._store.steps()

  def best_step(self) -> int | None:
    """The step of the best evaluation, or None if no checkpoint was evaluated.

    Raises:
      UserError: the best checkpoint is missing, or the latest, which records it, is damaged.
    """
    steps = self.steps()
    if not steps:
      return None
    best = best_evaluation(self.history(steps[-1])['evaluations'])
    if best and best['step'] not in steps:
      raise UserError(f'the best checkpoint of {self._directory}, of step {best["step"]}, is not '
                      f'there; choose another: latest, or one of the steps '
                      f'{", ".join(map(str, steps))}')
    return best and best['step']

  def fall_back(self) -> int | None:
    """Returns the step of the latest undamaged checkpoint, or None if there are no checkpoints.

    Moves later checkpoints, which are damaged, aside, so that their steps can be saved again.
    They are not deleted: a person may repair them, and a faulty disk may recover.

    Raises:
      UserError: there are checkpoints, and all of them are damaged.
    """
    step = processes.from_first(self._move_damaged_aside)
    if step is not None:
      self._verified.add(step)
    self._store.reload()
    return step

  def _move_damaged_aside(self) -> int | None:
    damaged = {}
    for step in reversed(self.steps()):
      damage = digests.find_damage(self._directory / str(step), step)
      if damage is None:
        break
      damaged[step] = damage
    else:
      if damaged:
        raise UserError(f'no checkpoint in {self._directory} is whole: '
                        f'{"; ".join(f"{step}: {damage}" for step, damage in damaged.items())}; '
                        f'restore one from a copy, or train anew in another --workdir')
      return None
    for later, damage in damaged.items():
      digests.move_aside(self._directory / str(later), damage, step)
    return step

  def resolve(self, which: str) -> int:
    """Returns the step that `best`, `latest` or a number names.

    Raises:
      UserError: there is no such checkpoint, or it is damaged.
    """
    step = self._find(which)
    self._verify(step)
    return step

  def _find(self, which: str) -> int:
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
      history: JSON data to save with the state. Its `evaluations`, each with `step`,
        `valid/bleu` and `valid/loss`, decide which checkpoint is kept as the best.

    Raises:
      UserError: this checkpoint, or the one before, cannot be written.
    """
    self.wait()
    items = {PARAMS: state.params, AVERAGE: state.average, SKIPS: state.skips,
             _REST: {'step': state.step, 'optimizer': state.optimizer}}
    # Orbax reads the history later, in a thread, while the caller's may grow.
    self._store.save(int(state.step), copy.deepcopy(history), _without_none(items))

  def restore(self, step: int, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
    """Returns the state and the history of a checkpoint.

    Args:
      like: a state of `jax.ShapeDtypeStruct` with the shardings to restore to.
    """
    # A run that was resumed with train.skip_nonfinite has older checkpoints without counters.
    has_skips = (self._directory / str(step) / SKIPS).is_dir()
    items = {PARAMS: like.params, AVERAGE: like.average, SKIPS: like.skips if has_skips else None,
             _REST: {'step': like.step, 'optimizer': like.optimizer}}
    parts = self._read(step, _without_none(items), history=True)
    skips = parts.get(SKIPS)
    if skips is None:
      skips = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding),
                           like.skips)
    return TrainState(parts[_REST]['step'], parts[PARAMS], parts[_REST]['optimizer'],
                      parts.get(AVERAGE), skips), parts['history']

  def restore_params(self, step: int, like, item: str = PARAMS):
    """Reads the parameters of a checkpoint, or their moving average, and nothing else."""
    return self._read(step, {item: like})[item]

  def average_params(self, steps: list[int], like, item: str = PARAMS):
    """Returns the mean of several checkpoints' parameters (section 6.1) or moving averages."""
    if len(steps) == 1:
      return self.restore_params(steps[0], like, item)

    def mean():
      total = self.restore_params(steps[0], like, item)
      for step in steps[1:]:
        total = jax.tree.map(jnp.add, total, self.restore_params(step, like, item))
      return jax.tree.map(lambda leaf: leaf / len(steps), total)

    for step in steps:
      self._verify(step)
    return keep_mean(mean, like, lambda: [item.encode(), *map(self._digests, steps)])

  def history(self, step: int) -> dict[str, Any]:
    """Reads the history of a checkpoint, and nothing else.

    Raises:
      UserError: the checkpoint is damaged, or its history is malformed.
    """
    history = self._read(step, {}, history=True)['history']
    try:
      for evaluation in history['evaluations']:
        int(evaluation['step'])
        for score in (evaluation['valid/bleu'], evaluation['valid/loss'],
                      deciding_metric(evaluation)[1]):
          float(score)
    except (KeyError, TypeError, ValueError) as error:
      raise UserError(f'{self._directory / str(step)} should hold a history of evaluations, which '
                      f'cannot be understood ({error!r}); restore it from a copy') from error
    return history

  def _read(self, step: int, items: dict[str, Any], history: bool = False):
    self._verify(step)
    try:
      return self._store.read(step, items, history)
    except Exception as error:  # Orbax and TensorStore raise many types.
      if is_out_of_memory(error):
        raise
      self._check_exists(step)
      raise UserError(
          f'{self._directory / str(step)} is as it was written, and cannot be read or does not fit '
          f'the run\'s config.json ({type_and_message(error)[:200]}); restore both from a copy, or '
          f'choose another checkpoint') from error

  def _verify(self, step: int):
    """Refuses a checkpoint that differs from what was written; compares each only once."""
    if step in self._verified:
      return
    self._check_exists(step)
    if damage := digests.find_damage(self._directory / str(step), step):
      self._check_exists(step)
      raise UserError(f'{self._directory / str(step)} is damaged: {damage}; restore it from a '
                      f'copy, or choose another checkpoint')
    self._verified.add(step)

  def _digests(self, step: int) -> bytes:
    path = self._directory / str(step) / digests.DIGESTS
    try:
      return path.read_bytes()
    except OSError as error:
      self._check_exists(step)
      raise UserError(f'{path} cannot be read: {error.strerror}; restore it from a copy') from error

  def _check_exists(self, step: int):
    """Refuses a checkpoint that was removed after the directory was opened."""
    folder = self._directory / str(step)
    if not folder.exists():
      raise UserError(f'{folder} was there and has been removed, as a run in training removes old '
                      f'checkpoints; start again, or choose another checkpoint')

  def prune(self, history: dict[str, Any]):
    """Deletes what a killed process was about to, by the history of the latest checkpoint."""
    self._store.prune(list(history['evaluations']))

  def wait(self):
    """Waits until everything is written; raises `UserError` if that fails."""
    self._store.wait()

  def check(self) -> bool:
    """Returns whether a write has ended since the last call; raises `UserError` if it failed."""
    return self._store.check()

  def close(self):
    """Waits as `wait` does, and releases the directory."""
    self._store.close()


def _without_none(items: dict[str, Any]) -> dict[str, Any]:
  return {name: item for name, item in items.items() if item is not None}
