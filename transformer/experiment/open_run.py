"""A run's directory while it trains: locked, with what was there before, and what it records."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformer.config import Config
from transformer.runs import resuming, run_directory
from transformer.runs.checkpoint_writer import CheckpointWriter
from transformer.runs.checkpoints import Checkpoints
from transformer.runs.evaluations import is_out_of_patience
from transformer.runs.lock import RunLock
from transformer.system import processes


@contextlib.contextmanager
def open_run(workdir: Path, config: Config) -> Iterator['OpenRun']:
  """Locks a directory, and reads what is there; refuses settings that would change its updates."""
  with contextlib.ExitStack() as stack:
    yield OpenRun(workdir, config, stack)


class OpenRun:
  """A directory that this process alone trains in.

  Attributes:
    workdir: the directory.
    begun: whether the directory holds a run.
    changes: the settings that have changed and may, by dotted name: `from` and `to`.
    step: the step of the newest whole checkpoint; None if there is none.
    history: that checkpoint's, or that of a new run.
    unfinished: whether a signal stopped the run there, so that the step may lack its evaluation.
    done: whether no update is left; a run that has `ended` lacks no evaluation, either.
  """

  def __init__(self, workdir: Path, config: Config, stack: contextlib.ExitStack | None):
    """Reads the directory, which the stack releases; without one, nothing is locked or changed."""
    self.workdir = workdir
    self._stack = stack
    self._keep = config.train.keep
    self.step: int | None = None
    self.history: dict[str, Any] = {'evaluations': [], 'meter': {}}
    self.unfinished = False
    self.begun, self.changes, has_checkpoints = processes.from_first(
      lambda: self._lock(config)
    )
    self._checkpoints: Checkpoints | None = None
    if has_checkpoints:
      folder = workdir / run_directory.CHECKPOINTS
      self._checkpoints = self.open_checkpoints() if stack else Checkpoints(folder)
      # On a network file system, several processes may see different folders for a while.
      self.step = processes.from_first(self._checkpoints.fall_back)
    if self.step is not None:
      self.history = self._checkpoints.history(self.step)
      self.unfinished = processes.from_first(
        lambda: self._checkpoints.is_unfinished(self.step)
      )
    train = config.train
    is_last = self.step is not None and self.step >= train.steps
    self.done = is_last or is_out_of_patience(
      self.history['evaluations'], train.patience
    )
    self.ended = self.done and not self.unfinished

  def _lock(self, config: Config) -> tuple[bool, Mapping[str, Any], bool]:
    if self._stack:
      self._stack.enter_context(RunLock(self.workdir))
    # train.py has compared the settings, but another run may have begun before the lock was taken.
    changes = resuming.changed_settings(self.workdir, config)
    has_checkpoints = (self.workdir / run_directory.CHECKPOINTS).is_dir()
    return run_directory.has_begun(self.workdir), changes, has_checkpoints

  def open_checkpoints(self) -> CheckpointWriter:
    """Returns the checkpoints; a new run may open them once its settings are written."""
    if self._checkpoints:
      return self._checkpoints
    folder = self.workdir / run_directory.CHECKPOINTS
    return self._stack.enter_context(
      contextlib.closing(CheckpointWriter(folder, keep=self._keep))
    )
