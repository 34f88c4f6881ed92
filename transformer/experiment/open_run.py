"""A run's directory while it trains: locked, with what was there before."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from transformer.config import Config
from transformer.runs import resuming, run_directory
from transformer.runs.checkpoint_writer import CheckpointWriter
from transformer.runs.checkpoints import Checkpoints
from transformer.runs.evaluations import is_out_of_patience
from transformer.runs.lock import run_lock
from transformer.system import processes


class OpenRun(NamedTuple):
  """What a directory holds at the start of a process.

  Attributes:
    begun: whether the directory holds a run.
    changes: the settings that have changed and may, by dotted name: `from` and `to`.
    step: the step of the newest whole checkpoint; None if there is none.
    history: that checkpoint's; of a new run, it has no evaluations.
    unfinished: whether a signal stopped the run there, so that the step may lack its evaluation.
    done: whether no update is left.
  """

  workdir: Path
  begun: bool
  changes: dict
  step: int | None
  history: Mapping
  unfinished: bool
  done: bool

  @property
  def ended(self) -> bool:
    """Whether neither an update nor an evaluation is left."""
    return self.done and not self.unfinished


@contextlib.contextmanager
def open_run(
  workdir: Path, config: Config
) -> Iterator[tuple[OpenRun, CheckpointWriter]]:
  """Locks a directory, in which this process alone trains, and reads what is there.

  Raises `UserError` for settings that would change the run's updates.
  """
  with contextlib.ExitStack() as stack:
    processes.from_first(lambda: stack.enter_context(run_lock(workdir)))
    folder = workdir / run_directory.CHECKPOINTS
    writer = CheckpointWriter(folder, keep=config.train.keep)
    stack.enter_context(contextlib.closing(writer))
    yield read_run(workdir, config, writer), writer


def read_run(workdir: Path, config: Config, checkpoints: Checkpoints) -> OpenRun:
  """Returns what a directory holds; damaged checkpoints are passed over."""

  def look():
    # train.py has compared the settings, but another run may have begun before the lock was taken.
    changes = resuming.changed_settings(workdir, config)
    begun = run_directory.has_begun(workdir)
    step = checkpoints.fall_back()
    unfinished = step is not None and checkpoints.is_unfinished(step)
    return begun, changes, step, unfinished

  # On a network file system, several processes may see different folders for a while.
  begun, changes, step, unfinished = processes.from_first(look)
  history = {'evaluations': []} if step is None else checkpoints.history(step)
  is_last = step is not None and step >= config.train.steps
  done = is_last or is_out_of_patience(history['evaluations'], config.train.patience)
  return OpenRun(workdir, begun, changes, step, history, unfinished, done)
