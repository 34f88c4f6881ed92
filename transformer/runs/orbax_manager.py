"""Orbax's manager of checkpoints, with digests and one-line errors."""

import asyncio
import contextlib
import errno
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import jax
import orbax.checkpoint as ocp
from etils import epath

from transformer.errors import UserError, type_and_message
from transformer.files import flush_folder
from transformer.runs import sealing
from transformer.system import processes

# The end of the name of a checkpoint that is complete but has no digests yet.
UNSEALED = '.unsealed'
# The folder that Orbax moves a checkpoint to before its files are deleted. So a killed process
# leaves no part of a checkpoint among the others.
REMOVED = 'removed'
_REASONS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS,
            errno.EIO)


def open_manager(directory: Path, read_only: bool, policy) -> ocp.CheckpointManager:
  """Returns a manager of an absolute directory; `policy.should_preserve` tells what stays."""
  return ocp.CheckpointManager(epath.Path(directory), options=ocp.CheckpointManagerOptions(
      create=not read_only, cleanup_tmp_directories=not read_only,
      temporary_path_class=_SealedPath, todelete_subdir=REMOVED,
      async_options=ocp.AsyncOptions(barrier_sync_fn=_wait_for_all),
      lightweight_initialize=True,  # Else Orbax reads every checkpoint before it is verified.
      preservation_policy=policy))


@contextlib.contextmanager
def one_line_errors(directory: Path) -> Iterator[None]:
  """Turns any failure to write a checkpoint into a `UserError`."""
  try:
    yield
  except Exception as error:  # Orbax and TensorStore raise many types.
    raise _write_error(error, f' to {directory}') from error


def _write_error(error: BaseException, where: str = '') -> UserError:
  reasons = map(os.strerror, _REASONS)
  reason = next((text for text in reasons if text in str(error)), type_and_message(error)[:200])
  return UserError(
      f'a checkpoint cannot be written{where}: {reason}; free disk space or allow writing there, '
      f'then start again, and the run goes on from the checkpoint before')


def _wait_for_all(*, key: str, timeout_ms: int):
  """Waits at one of Orbax's barriers for all processes.

  After a failed write, Orbax's thread reaches another barrier than the other processes: all would
  wait for ever. So this process ends, and the others notice.
  """
  error = sys.exc_info()[1]
  if (error and jax.process_count() > 1
      and threading.current_thread() is not threading.main_thread()):
    processes.fail(_write_error(error))
  try:
    ocp.multihost.get_barrier_sync_fn()(key=key, timeout_ms=timeout_ms)
  except jax.errors.JaxRuntimeError:
    processes.fail(UserError(
        f'another process has ended, or has not written its part of a checkpoint in '
        f'{round(timeout_ms / 60_000)} minutes; read its output, then start again, and the run '
        f'goes on from the checkpoint before'))


class _SealedPath(ocp.path.atomicity.AtomicRenameTemporaryPath):
  """Orbax's renaming of a complete checkpoint, with digests added first, all in Orbax's thread.

  Orbax calls `temporary_path_class` deprecated. Its successor `atomicity_options` takes only
  Orbax's own classes. Digests that Orbax's callback adds after the renaming would leave a
  checkpoint without them where a process is killed in between.
  """

  async def finalize(self):
    """Renames to `STEP.unsealed`, which no reader takes for a checkpoint; seals; renames."""
    final = self._final_path
    if not final.name.isdecimal():  # It is a part of a checkpoint.
      await super().finalize()
      return
    self._final_path = final.with_name(final.name + UNSEALED)
    await super().finalize()
    await asyncio.to_thread(_finish, self._final_path, final)
    self._final_path = final


def _finish(folder: epath.Path, final: epath.Path):
  for part in folder.iterdir():
    if (part / '_METADATA').exists():
      ocp.StandardCheckpointHandler().metadata(part)  # Raises an error if no array is there.
  sealing.seal(folder, int(final.name))
  os.rename(folder, final)
  flush_folder(final.parent)
