"""The checkpoints of a run in training, which Orbax writes and restores."""

import asyncio
import contextlib
import copy
import errno
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from etils import epath

from transformer.errors import UserError, type_and_message
from transformer.files import flush_folder
from transformer.runs import sealing
from transformer.runs.checkpoints import AVERAGE, HISTORY, PARAMS, Checkpoints
from transformer.runs.evaluations import best_steps
from transformer.runs.resuming import record_newest
from transformer.runs.run_directory import REMOVED, UNFINISHED
from transformer.system import processes
from transformer.training.step import TrainState

# Parts that only training needs. `rest` is the number of updates and the optimizer's state.
_SKIPS = 'skips'
_REST = 'rest'
# The end of the name of a checkpoint that is complete but has no digests yet.
_UNSEALED = '.unsealed'
_REASONS = (
  errno.ENOSPC,
  errno.EDQUOT,
  errno.EFBIG,
  errno.EACCES,
  errno.EPERM,
  errno.EROFS,
  errno.EIO,
)


class CheckpointWriter(Checkpoints):
  """Saves, restores and deletes checkpoints.

  A thread writes a checkpoint while training goes on. Its folder gets its name last, so no half of
  it is seen.
  """

  def __init__(self, directory: str | os.PathLike, *, keep: int = 1):
    """Opens a directory, or creates it.

    The best checkpoint stays in addition to the latest `keep`. A later checkpoint replaces an
    unfinished one, which does not count.
    """
    super().__init__(directory)
    self._keep = keep
    self._evaluations: Sequence[dict[str, Any]] = ()
    self._saving = False
    processes.from_first(self._tidy)
    self._manager = ocp.CheckpointManager(
      epath.Path(self._directory),
      options=ocp.CheckpointManagerOptions(
        create=True,
        cleanup_tmp_directories=True,
        temporary_path_class=_SealedPath,
        todelete_subdir=REMOVED,
        async_options=ocp.AsyncOptions(barrier_sync_fn=_wait_for_all),
        lightweight_initialize=True,  # Else Orbax reads every checkpoint before it is verified.
        preservation_policy=self,
      ),
    )
    # On a network file system, several processes may see different folders for a while.
    self._unfinished = set(processes.from_first(lambda: list(self._unfinished)))

  def _tidy(self):
    """Removes parts of steps, and takes back a step that was to be replaced, and was not."""
    for left in self._directory.glob(f'*{_UNSEALED}*'):
      shutil.rmtree(left)
    for path in self._directory.glob(f'{REMOVED}/*'):
      if path.name.isdecimal() and int(path.name) > max(self._steps, default=-1):
        self._unfinished.add(int(path.name))
        path.rename(self._directory / path.name)

  def steps(self) -> list[int]:
    return sorted(self._manager.all_steps())

  def fall_back(self) -> int | None:
    """Returns the step of the latest undamaged checkpoint, or None if there are no checkpoints.

    Moves later checkpoints, which are damaged, aside, so that their steps can be saved again; a
    person may repair them. Raises `UserError` if all checkpoints are damaged.
    """
    step = processes.from_first(
      lambda: sealing.newest_whole(self._directory, self.steps(), move=True)
    )
    self._verified |= {step} - {None}
    self._unfinished = {unfinished for unfinished in self._unfinished if unfinished <= (step or 0)}
    self._manager.reload()
    return step

  def save(self, state: TrainState, history: dict[str, Any], unfinished: bool = False):
    """Starts to write a checkpoint; returns once the state may be changed again.

    An `unfinished` step may lack its evaluation. Its checkpoint is deleted before the finished one
    is written. It is written before this returns. The `evaluations` of the history, JSON data, tell
    which checkpoint is the best.
    """
    self.wait()
    step = int(state.step)
    parts = {name: ocp.args.StandardSave(item) for name, item in _parts(state).items()}
    # Orbax reads the history later, in a thread, while the caller's may grow.
    parts[HISTORY] = ocp.args.JsonSave(copy.deepcopy(history))
    if step in self._unfinished:
      self._manager.delete(step)
      self._unfinished.remove(step)
    if unfinished:
      parts[UNFINISHED] = ocp.args.JsonSave({})
      self._unfinished.add(step)
    self._evaluations = history['evaluations']
    with _one_line_errors(self._directory):
      if not self._manager.save(step, args=ocp.args.Composite(**parts)):
        raise FileExistsError(f'step {self._manager.latest_step()} is there; {step} is no later')
    self._saving = True
    if unfinished:
      self.wait()

  def restore(self, step: int, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
    """Returns the state and the history of a checkpoint, to go on with training.

    `like` has the shapes, types and shardings to restore to. Deletes the checkpoints that a killed
    process was about to delete.
    """
    history = self.history(step)
    wanted = _parts(like)
    # A run that was resumed with train.skip_nonfinite has older checkpoints without counters.
    if not (self._directory / str(step) / _SKIPS).is_dir():
      wanted.pop(_SKIPS, None)
    parts = {name: ocp.args.StandardRestore(part) for name, part in wanted.items()}
    parts = self._read(
      step, lambda _: self._manager.restore(step, args=ocp.args.Composite(**parts))
    )
    skips = parts.get(_SKIPS) or jax.tree.map(
      lambda leaf: jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding), like.skips
    )
    self._evaluations = history['evaluations']
    for other in set(self.steps()) - self._kept(self.steps()):
      self._manager.delete(other)
    self._empty_removed()
    return TrainState(
      parts[_REST]['step'], parts[PARAMS], parts[_REST]['optimizer'], parts.get(AVERAGE), skips
    ), history

  def should_preserve(self, checkpoints, *, context) -> list[bool]:
    """Tells Orbax which checkpoints stay."""
    del context
    kept = self._kept([checkpoint.step for checkpoint in checkpoints])
    return [checkpoint.step in kept for checkpoint in checkpoints]

  def _kept(self, steps: Sequence[int]) -> set[int]:
    """Returns those of the steps, ascending, whose checkpoints stay."""
    finished = [step for step in steps if step not in self._unfinished]
    return {
      *finished[-self._keep :],
      *steps[-1:],
      *best_steps(self._evaluations, finished, self._keep),
    }

  def wait(self):
    """Waits until everything is written; raises `UserError` if that fails."""
    saving, self._saving = self._saving, False
    with _one_line_errors(self._directory):
      self._manager.wait_until_finished()
    if saving:  # Not after a fault: what was to be replaced is still there.
      self._empty_removed()

  def check(self):
    """Raises `UserError` if a write has failed; does not wait for one that goes on.

    One of several processes ends at once, since the others do not have its error.
    """
    # Orbax's `check_for_errors` does not see the errors that its own thread has met.
    if not self._saving or self._manager.is_saving_in_progress():
      return
    try:
      self.wait()
    except UserError as error:
      if jax.process_count() == 1:
        raise
      processes.fail(error)

  def close(self):
    """Waits as `wait` does, and releases the directory."""
    try:
      self.wait()
    finally:
      with _one_line_errors(self._directory):  # Orbax may raise an error again.
        self._manager.close()

  def _empty_removed(self):
    if processes.is_first():
      shutil.rmtree(self._directory / REMOVED, ignore_errors=True)


def _parts(state: TrainState) -> dict[str, Any]:
  parts = {
    PARAMS: state.params,
    AVERAGE: state.average,
    _SKIPS: state.skips,
    _REST: {'step': state.step, 'optimizer': state.optimizer},
  }
  return {name: part for name, part in parts.items() if part is not None}


@contextlib.contextmanager
def _one_line_errors(directory: Path) -> Iterator[None]:
  """Turns any failure to write a checkpoint into a `UserError`."""
  try:
    yield
  except Exception as error:  # Orbax and TensorStore raise many types.
    raise _write_error(error, f' to {directory}') from error


def _write_error(error: BaseException, where: str = '') -> UserError:
  reasons = map(os.strerror, _REASONS)
  reason = next((text for text in reasons if text in str(error)), type_and_message(error))
  return UserError(
    f'a checkpoint cannot be written{where}: {reason}; free disk space or allow writing there, '
    f'then start again, and the run goes on from the checkpoint before'
  )


def _wait_for_all(*, key: str, timeout_ms: int):
  """Waits at one of Orbax's barriers for all processes.

  After a failed write, Orbax's thread reaches another barrier than the other processes: all would
  wait for ever. So this process ends, and the others notice.
  """
  error = sys.exc_info()[1]
  if (
    error and jax.process_count() > 1 and threading.current_thread() is not threading.main_thread()
  ):
    processes.fail(_write_error(error))
  try:
    ocp.multihost.get_barrier_sync_fn()(key=key, timeout_ms=timeout_ms)
  except jax.errors.JaxRuntimeError:
    processes.fail(
      UserError(
        f'another process has ended, or has not written its part of a checkpoint in '
        f'{round(timeout_ms / 60_000)} minutes; read its output, then start again, and the run '
        f'goes on from the checkpoint before'
      )
    )


class _SealedPath(ocp.path.atomicity.AtomicRenameTemporaryPath):
  """Orbax's renaming of a complete checkpoint, with digests added first, all in Orbax's thread.

  Orbax calls `temporary_path_class` deprecated. Its successor `atomicity_options` takes only
  Orbax's own classes. Digests that Orbax's callback adds after the renaming would leave a
  checkpoint without them where a process is killed in between.
  """

  async def finalize(self):
    """Renames to `STEP.unsealed`, which no reader takes for a checkpoint; seals; renames."""
    final = self._final_path
    whole = final.name.isdecimal()  # Else it is a part of a checkpoint.
    if whole:
      self._final_path = final.with_name(final.name + _UNSEALED)
    await super().finalize()
    if whole:
      await asyncio.to_thread(_finish, self._final_path, final)
      self._final_path = final


def _finish(folder: epath.Path, final: epath.Path):
  for part in folder.iterdir():
    if (part / '_METADATA').exists():
      ocp.StandardCheckpointHandler().metadata(part)  # Raises an error if no array is there.
  sealing.seal(folder, int(final.name))
  os.rename(folder, final)
  flush_folder(final.parent)
  record_newest(Path(final.parent.parent), int(final.name))
