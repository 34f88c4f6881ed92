"""Reads and writes checkpoint folders with Orbax; the one file that imports Orbax."""

import asyncio
import contextlib
import errno
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from transformer.errors import UserError, type_and_message
from transformer.files import flush_folder
from transformer.runs import digests
from transformer.runs.patience import best_steps
from transformer.system import processes

# The end of the name of a checkpoint that is complete but has no digests yet.
_UNSEALED = '.unsealed'
# The folder that Orbax moves a checkpoint to before it deletes its files. So a killed process
# leaves no part of a checkpoint among the others.
_REMOVED = 'removed'
_HISTORY = 'history'


class OrbaxStore:
  """Folders `STEP/`, each with named pytrees of arrays and a JSON history.

  A thread writes a checkpoint under a temporary name while training goes on. The checkpoint
  gets its final name after its digests, so a half-written checkpoint is never visible.
  """

  def __init__(self, directory: Path, keep: int, read_only: bool):
    """Opens the directory.

    Args:
      directory: the parent of the folders, an absolute path.
      keep: as for `Checkpoints`.
      read_only: as for `Checkpoints`.
    """
    self._directory, self._read_only = directory, read_only
    self._unchecked = False  # Whether a save has begun that `check` has not seen end.
    self._best = _KeepBest(keep)
    if not read_only and processes.is_first():
      for left in directory.glob(f'*{_UNSEALED}*'):  # A killed process left it.
        shutil.rmtree(left)
    policies = ocp.checkpoint_managers
    options = ocp.CheckpointManagerOptions(
        create=not read_only, cleanup_tmp_directories=not read_only,
        temporary_path_class=_SealedPath, todelete_subdir=_REMOVED,
        async_options=ocp.AsyncOptions(barrier_sync_fn=self._wait_for_all),
        lightweight_initialize=True,  # Else Orbax reads every checkpoint before it is verified.
        preservation_policy=policies.AnyPreservationPolicy([policies.LatestN(keep), self._best]))
    self._manager = ocp.CheckpointManager(LiteralPath(directory), options=options)

  def steps(self) -> list[int]:
    """The steps that have a checkpoint, ascending."""
    return sorted(self._manager.all_steps())

  def reload(self):
    """Reads the list of checkpoints again."""
    self._manager.reload()

  def save(self, step: int, history: dict[str, Any], items: Mapping[str, Any]):
    """Starts to write a checkpoint; returns once `items` may be changed.

    Args:
      step: its step.
      history: as for `Checkpoints.save`; must not change afterwards.
      items: pytrees of arrays by name.

    Raises:
      UserError: this checkpoint or the one before cannot be written.
    """
    self._best.evaluations = history['evaluations']
    self._unchecked = True
    with self._one_line_errors(step):
      self._manager.save(step, args=ocp.args.Composite(
          **{_HISTORY: ocp.args.JsonSave(history)},
          **{name: ocp.args.StandardSave(item) for name, item in items.items()}))

  def read(self, step: int, items: Mapping[str, Any], history: bool = False) -> Mapping[str, Any]:
    """Reads parts of a checkpoint.

    Args:
      step: one of `steps()`.
      items: what to read: pytrees of `jax.ShapeDtypeStruct` by name.
      history: whether to read the history too.

    Returns:
      The items by name, and the history as `history`.
    """
    wanted = {name: ocp.args.StandardRestore(like) for name, like in items.items()}
    if history:
      wanted[_HISTORY] = ocp.args.JsonRestore()
    return self._manager.restore(step, args=ocp.args.Composite(**wanted))

  def prune(self, evaluations: Sequence[Mapping[str, float]]):
    """Deletes the checkpoints that a killed process was about to delete.

    Args:
      evaluations: those in the history of the latest checkpoint.
    """
    self._best.evaluations = evaluations
    steps = self.steps()
    best = best_steps(evaluations, steps, self._best.keep)
    for step in steps[:-self._best.keep]:
      if step not in best:
        self._manager.delete(step)
    self._delete_removed()

  def wait(self):
    """Waits until everything is written; raises `UserError` if that fails."""
    with self._one_line_errors(self._manager.latest_step()):
      self._manager.wait_until_finished()
    self._delete_removed()

  def check(self) -> bool:
    """Returns whether a write has ended that had not ended at the last call; does not wait.

    Raises:
      UserError: the write has failed.
    """
    if not self._unchecked or self._manager.is_saving_in_progress():
      return False
    self._unchecked = False
    # Orbax's `check_for_errors` does not see the errors that its own thread has met.
    with self._one_line_errors(self._manager.latest_step()):
      self._manager.wait_until_finished()
    return True

  def close(self):
    """Waits as `wait` does, and closes Orbax's manager."""
    try:
      self.wait()
    finally:
      with self._one_line_errors(self._manager.latest_step()):  # Orbax may raise an error again.
        self._manager.close()

  def _wait_for_all(self, *, key: str, timeout_ms: int):
    """Waits at one of Orbax's barriers for all processes.

    After a failed write, Orbax's thread handles the error, and reaches another barrier than
    the other processes: all would wait for ever. So this process ends, and the others notice.
    """
    error = sys.exc_info()[1]
    if (error and jax.process_count() > 1
        and threading.current_thread() is not threading.main_thread()):
      processes.fail(self._write_error(self._manager.latest_step(), error))
    try:
      ocp.multihost.get_barrier_sync_fn()(key=key, timeout_ms=timeout_ms)
    except jax.errors.JaxRuntimeError:
      processes.fail(UserError(
          f'another process has ended, or has not written its part of the checkpoint of step '
          f'{self._manager.latest_step()} in {round(timeout_ms / 60_000)} minutes; read its '
          f'output, then start again, and the run goes on from the checkpoint before'))

  @contextlib.contextmanager
  def _one_line_errors(self, step: int | None) -> Iterator[None]:
    """Turns any failure to write a checkpoint into a `UserError`."""
    try:
      yield
    except Exception as error:  # Orbax and TensorStore raise many types.
      raise self._write_error(step, error) from error

  def _write_error(self, step: int | None, error: BaseException) -> UserError:
    if isinstance(error, UserError):
      return error
    return UserError(
        f'the checkpoint of step {step} cannot be written to {self._directory}: '
        f'{_reason(error)}; free disk space or allow writing there, then start again, and the '
        f'run goes on from the checkpoint before')

  def _delete_removed(self):
    """Deletes the files of checkpoints in the folder `_REMOVED`, unless this is a reader."""
    if processes.is_first() and not self._read_only:  # A run may be moving one there.
      shutil.rmtree(self._directory / _REMOVED, ignore_errors=True)


class LiteralPath(type(epath.Path())):
  """A local path for Orbax, in which every character stands for itself.

  Orbax's own kind takes `[`, `*` and `?` in a folder's name for a pattern when it lists the
  folder, and so does not find its files or finds those of another folder. It also takes `/gs/`,
  at the beginning, for a bucket.
  """

  _uri_scheme = None

  def glob(self, pattern: str) -> Iterator['LiteralPath']:
    """Yields what matches `NAME_*` with a number, as Orbax names the files of each process.

    A copy beside such a file, as file browsers make it, is none of Orbax's.
    """
    return (type(self)(path) for path in Path(self).glob(pattern)
            if path.name.rpartition('_')[2].isdecimal())


class _KeepBest:
  """Tells Orbax to keep the checkpoints of `best_steps`."""

  evaluations: Sequence[Mapping[str, float]] = ()

  def __init__(self, keep: int):
    self.keep = keep

  def should_preserve(self, checkpoints, *, context):
    del context
    steps = [checkpoint.step for checkpoint in checkpoints]
    best = best_steps(self.evaluations, steps, self.keep)
    return [step in best for step in steps]


class _SealedPath(ocp.path.atomicity.AtomicRenameTemporaryPath):
  """Orbax's renaming of a complete checkpoint, with digests added first.

  Orbax renames its temporary folder to `STEP.unsealed`, which no reader takes for a
  checkpoint. There the list of its arrays is read back, and the folder gets its digests, and then
  its final name. Only then does Orbax delete older checkpoints. All this happens in Orbax's thread.

  Orbax calls `temporary_path_class` deprecated. Its successor `atomicity_options` chooses among
  Orbax's own classes, and takes no other. Digests that are added after the renaming, by Orbax's
  callback, would leave a checkpoint without them where a process is killed in between.
  """

  @classmethod
  def from_final(cls, final_path, **options):
    # Orbax also renames each part of a checkpoint so; a part's name is no number.
    unsealed = _UNSEALED if final_path.name.isdecimal() else ''
    return super().from_final(final_path.with_name(final_path.name + unsealed), **options)

  def get_final(self):
    return self._final_path.with_name(self._final_path.name.removesuffix(_UNSEALED))

  async def finalize(self):
    await super().finalize()
    if self._final_path != self.get_final():
      await asyncio.to_thread(_check_readable, self._final_path)
      await asyncio.to_thread(digests.seal, self._final_path, int(self.get_final().name))
      os.rename(self._final_path, self.get_final())
      flush_folder(self.get_final().parent)


def _check_readable(folder: LiteralPath):
  """Refuses a complete checkpoint whose arrays Orbax cannot find again."""
  for item in folder.iterdir():
    if item.is_dir() and item.name != _HISTORY:
      try:
        ocp.StandardCheckpointHandler().metadata(item)
      except Exception as error:  # Orbax and TensorStore raise many types.
        raise UserError(
            f'the checkpoint {folder} cannot be read back ({type_and_message(error)[:200]}), so it '
            f'replaces no other; start again, and the run goes on from the checkpoint before; if '
            f'it happens again, put the run on another disk') from error


def _reason(error: BaseException) -> str:
  """Returns the short reason in a long error message of TensorStore or Orbax."""
  for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS,
               errno.EIO):
    if os.strerror(code) in str(error):
      return os.strerror(code)
  return f'{type(error).__name__}: {error}'.splitlines()[0]
