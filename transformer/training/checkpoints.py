"""Checkpoints of a run; the one file that knows Orbax."""

import asyncio
import contextlib
import copy
import errno
import os
import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from absl import logging

from transformer.errors import UserError
from transformer.files import flush_folder
from transformer.training import digests, processes
from transformer.training.patience import best_evaluation
from transformer.training.step import TrainState

# What a checkpoint holds the parameters, their moving average and skip counters as.
PARAMS, AVERAGE, SKIPS = 'params', 'average', 'skips'
# How a folder is named that is complete but not yet sealed, and one that is damaged.
_UNSEALED, _DAMAGED = '.unsealed', '.damaged'
# Where a checkpoint is moved before it is deleted, file by file, since a process that is
# killed in the middle of that would leave a part of one.
_REMOVED = 'removed'


def _reason(error: BaseException) -> str:
  """Why something could not be written, out of the story that TensorStore or Orbax tells."""
  for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS,
               errno.EIO):
    if os.strerror(code) in str(error):
      return os.strerror(code)
  return f'{type(error).__name__}: {error}'.splitlines()[0]


class _KeepBest:
  """Orbax's policy to keep the best, and the best as the oldest of the latest few knows it.

  A run that falls back to any of these finds the best that it had then. The two are
  the same unless the best is itself one of the latest.
  """

  evaluations: Sequence[dict[str, float]] = ()

  def __init__(self, latest: int):
    self._latest = latest

  def should_preserve(self, checkpoints, *, context):
    del context
    return self.keeps([each.step for each in checkpoints])

  def keeps(self, steps: Sequence[int]) -> list[bool]:
    """Of each step whether it is the best now, or was when the oldest of the latest was saved."""
    oldest = sorted(steps)[-self._latest:][0] if steps else 0
    before = [each for each in self.evaluations if each['step'] <= oldest]
    kept = [best_evaluation(evaluations) for evaluations in (self.evaluations, before)]
    return [any(each and each['step'] == step for each in kept) for step in steps]


def move_aside(folder: Path, damage: str, step: int):
  """Gives a damaged folder another name, and says that the run goes on from `step`."""
  aside = folder.with_name(folder.name + _DAMAGED)
  number = 1
  while aside.exists():
    number += 1
    aside = folder.with_name(f'{folder.name}{_DAMAGED}.{number}')
  os.rename(folder, aside)
  flush_folder(folder.parent)
  logging.warning('%s is damaged: %s; it is moved to %s, which may be removed, and the run '
                  'goes on from step %d', folder, damage, aside.name, step)


class _SealedPath(ocp.path.atomicity.AtomicRenameTemporaryPath):
  """Orbax's way to give a complete checkpoint its name, which has it sealed before.

  Orbax renames its temporary folder to one that nobody takes for a checkpoint; it
  gets its digests there, and then the name that counts, and only then do older
  ones go. Orbax calls this from a thread of its own, while training goes on.
  """

  @classmethod
  def from_final(cls, final_path, **options):
    # Orbax moves the parts of a checkpoint in the same way; these are named after what they hold.
    unsealed = _UNSEALED if final_path.name.isdecimal() else ''
    return super().from_final(final_path.with_name(final_path.name + unsealed), **options)

  def get_final(self):
    return self._final_path.with_name(self._final_path.name.removesuffix(_UNSEALED))

  async def finalize(self):
    await super().finalize()
    if self._final_path != self.get_final():
      await asyncio.to_thread(digests.seal, self._final_path, int(self.get_final().name))
      os.rename(self._final_path, self.get_final())
      flush_folder(self.get_final().parent)


class Checkpoints:
  """The checkpoints under a directory: the latest few and the best.

  A checkpoint holds the parameters, their moving average where a run keeps one,
  the rest of the training state, and the history that decides on patience and on
  the best. It is written to a folder of another name that is renamed when
  complete, so a half-written one is never seen. It comes with the digests of all
  its files, and nothing of it is used before every byte has been compared.
  """

  def __init__(self, directory: str | os.PathLike, *, keep: int = 1, read_only: bool = False):
    """Opens the directory.

    Args:
      directory: where `STEP/` folders lie; made if it is to be written to.
      keep: how many of the latest checkpoints to keep, beside the best.
      read_only: for those who only look: nothing is made or cleaned up.

    Raises:
      UserError: the path is not Unicode, which TensorStore needs.
    """
    self._directory = Path(directory).absolute()
    try:
      str(self._directory).encode()
    except UnicodeEncodeError as error:  # Python has lone surrogates for bytes that it cannot read.
      raise UserError(f'checkpoints must lie under a path that is {sys.getfilesystemencoding()} '
                      f'text here; got {self._directory}; set PYTHONUTF8=1 if it is UTF-8, or '
                      f'rename it') from error
    self._keep = keep
    self._best = _KeepBest(keep)
    self._whole: set[int] = set()
    if not read_only and processes.is_first():
      for left in self._directory.glob(f'*{_UNSEALED}*'):  # Of a process that was killed.
        shutil.rmtree(left)
    policies = ocp.checkpoint_managers
    self._manager = ocp.CheckpointManager(self._directory, options=ocp.CheckpointManagerOptions(
        create=not read_only, cleanup_tmp_directories=not read_only,
        temporary_path_class=_SealedPath, todelete_subdir=_REMOVED,
        async_options=ocp.AsyncOptions(barrier_sync_fn=self._meet),
        lightweight_initialize=True,  # It would read of every checkpoint before it is checked.
        preservation_policy=policies.AnyPreservationPolicy([policies.LatestN(keep), self._best])))

  def _meet(self, *, key: str, timeout_ms: int):
    """Waits, for Orbax, until all processes are here.

    One that could not write its part comes to another of Orbax's meetings than the others,
    in Orbax's own thread and with the fault in flight, and all would wait; so it leaves, and
    they notice.
    """
    fault = sys.exc_info()[1]
    if (fault and jax.process_count() > 1
        and threading.current_thread() is not threading.main_thread()):
      processes.fail(self._unwritten(self._manager.latest_step(), fault))
    try:
      ocp.multihost.get_barrier_sync_fn()(key=key, timeout_ms=timeout_ms)
    except jax.errors.JaxRuntimeError:
      processes.fail(UserError(
          f'another process has ended, or has not written its part of the checkpoint of step '
          f'{self._manager.latest_step()} in {round(timeout_ms / 60_000)} minutes; see what it '
          f'said, then start again, and the run goes on from the checkpoint before'))

  def steps(self) -> list[int]:
    """The steps that have a checkpoint, ascending."""
    return sorted(self._manager.all_steps())

  def best_step(self) -> int | None:
    """The step of the best evaluation, or None if no checkpoint was evaluated.

    Raises:
      UserError: its checkpoint is gone, or the latest, which knows it, is damaged.
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
    """The step of the latest checkpoint that is whole, or None if there never was any.

    Damaged ones after it are moved aside, so that their steps can be saved again.
    They are not removed: a person may still mend one, and a disk that reads wrongly
    today may read rightly tomorrow.

    Raises:
      UserError: there are checkpoints, and all of them are damaged.
    """
    step = processes.from_first(self._set_damaged_aside)
    if step is not None:
      self._whole.add(step)
    self._manager.reload()
    return step

  def _set_damaged_aside(self) -> int | None:
    """Does what `fall_back` says, but for what this object knows of it."""
    damaged = {}
    for step in reversed(self.steps()):
      found = digests.damage(self._directory / str(step), step)
      if found is None:
        break
      damaged[step] = found
    else:
      if damaged:
        raise UserError(f'no checkpoint in {self._directory} is whole: '
                        f'{"; ".join(f"{step}: {found}" for step, found in damaged.items())}; '
                        f'restore one from a copy, or train anew in another --workdir')
      return None
    for each, found in damaged.items():
      move_aside(self._directory / str(each), found, step)
    return step

  def resolve(self, which: str) -> int:
    """The step that `best`, `latest` or a number stands for.

    Raises:
      UserError: there is no such checkpoint, or it is damaged.
    """
    step = self._find(which)
    self._check(step)
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
      history: JSON data to keep with it; its `evaluations`, which have their `step`,
        `valid/bleu` and `valid/loss`, decide which checkpoint is kept as the best.

    Raises:
      UserError: this one, or the one before, cannot be written.
    """
    self.wait()
    history = copy.deepcopy(history)  # Orbax reads it later, in a thread, when it may have grown.
    self._best.evaluations = history['evaluations']
    rest = {'step': state.step, 'optimizer': state.optimizer}
    items = {PARAMS: state.params, AVERAGE: state.average, SKIPS: state.skips, 'rest': rest}
    with self._writing(int(state.step)):
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
    # A run may be told later on to skip, and then begins to count.
    counted = (self._directory / str(step) / SKIPS).is_dir()
    items = {PARAMS: like.params, AVERAGE: like.average, SKIPS: like.skips if counted else None,
             'rest': rest}
    found = self._read(step, history=ocp.args.JsonRestore(), **{
        name: ocp.args.StandardRestore(item) for name, item in items.items() if item is not None})
    skips = found.get(SKIPS)
    if skips is None:
      skips = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding),
                           like.skips)
    return TrainState(found.rest['step'], found.params, found.rest['optimizer'],
                      found.get(AVERAGE), skips), found.history

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

  def history(self, step: int) -> dict[str, Any]:
    """The history of a checkpoint, and nothing else of it.

    Raises:
      UserError: it is damaged, or was written to do harm.
    """
    history = self._read(step, history=ocp.args.JsonRestore()).history
    try:
      best_evaluation([{'step': int(each['step']), 'valid/bleu': float(each['valid/bleu']),
                        'valid/loss': float(each['valid/loss'])}
                       for each in history['evaluations']])
    except (KeyError, TypeError, ValueError) as error:
      raise UserError(f'{self._directory / str(step)} should hold a history of evaluations; it '
                      f'cannot be understood ({error!r}); restore it from a copy') from error
    return history

  def _read(self, step: int, **items):
    self._check(step)
    try:
      return self._manager.restore(step, args=ocp.args.Composite(**items))
    except Exception as error:  # Orbax and what lies under it raise whatever they met.
      self._check_there(step)
      raise UserError(
          f'{self._directory / str(step)} cannot be read, or does not fit the run\'s config.json '
          f'({type(error).__name__}); restore it from a copy, or remove that folder to go on from '
          f'the checkpoint before') from error

  def _check(self, step: int):
    """Refuses a checkpoint that is not as it was written; it is looked at once."""
    if step in self._whole:
      return
    self._check_there(step)
    if found := digests.damage(self._directory / str(step), step):
      raise UserError(f'{self._directory / str(step)} is damaged: {found}; restore it from a copy, '
                      f'or choose another checkpoint')
    self._whole.add(step)

  def _check_there(self, step: int):
    """Refuses a checkpoint that has gone since the directory was opened."""
    folder = self._directory / str(step)
    if not folder.exists():
      raise UserError(f'{folder} was there and has been removed, as a run in training does with '
                      f'old ones; start again, or choose another')

  def prune(self, history: dict[str, Any]):
    """Removes what a process that was killed did not get to remove; `history` is the latest's."""
    self._best.evaluations = list(history['evaluations'])
    steps = self.steps()
    for step, best in list(zip(steps, self._best.keeps(steps), strict=True))[:-self._keep]:
      if not best:
        self._manager.delete(step)
    self._sweep()

  def wait(self):
    """Waits until everything is written.

    Raises:
      UserError: a checkpoint cannot be written.
    """
    with self._writing(self._manager.latest_step()):
      self._manager.wait_until_finished()
    self._sweep()

  def check(self):
    """Does not wait, but tells whether anything could not be written so far.

    Raises:
      UserError: a checkpoint cannot be written.
    """
    with self._writing(self._manager.latest_step()):
      self._manager.check_for_errors()

  @contextlib.contextmanager
  def _writing(self, step: int | None):
    """Says in one line that a checkpoint cannot be written."""
    try:
      yield
    except Exception as error:  # Orbax and what lies under it raise whatever they met.
      raise self._unwritten(step, error) from error

  def _unwritten(self, step: int | None, error: BaseException) -> UserError:
    return UserError(
        f'the checkpoint of step {step} cannot be written to {self._directory}: '
        f'{_reason(error)}; make room or give leave to write there, then start again, and the '
        f'run goes on from the checkpoint before')

  def _sweep(self):
    """Deletes what was moved away to be deleted."""
    if processes.is_first():
      shutil.rmtree(self._directory / _REMOVED, ignore_errors=True)

  def close(self):
    """Waits until everything is written.

    Raises:
      UserError: a checkpoint cannot be written.
    """
    try:
      self.wait()
    finally:
      with self._writing(self._manager.latest_step()):  # Orbax may tell of a fault once more.
        self._manager.close()
