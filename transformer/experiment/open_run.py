"""Opens a run's directory for training: locks it, and reads the earlier state of the run."""

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


class RunState(NamedTuple):
  """The state of a run's directory at the start of a process.

  Attributes:
    begun: whether the directory holds a run.
    changes: the settings that have changed since the last start, by dotted name: `from` and `to`.
    step: the step of the latest intact checkpoint; None if there is none.
    history: the history of that checkpoint; for a new run, it has no evaluations.
    eval_pending: whether the evaluation of that step may be missing, because a signal or an
      error stopped the run there.
    training_done: whether no training step remains.
  """

  workdir: Path
  begun: bool
  changes: dict
  step: int | None
  history: Mapping
  eval_pending: bool
  training_done: bool

  @property
  def is_finished(self) -> bool:
    """Whether neither a training step nor an evaluation remains."""
    return self.training_done and not self.eval_pending


@contextlib.contextmanager
def open_run(
  workdir: Path, config: Config
) -> Iterator[tuple[RunState, CheckpointWriter]]:
  """Locks a directory, so that no other run trains in it, and reads its state.

  Raises `UserError` if changed settings would alter the training steps of the run.
  """
  with contextlib.ExitStack() as stack:
    processes.broadcast_from_first(lambda: stack.enter_context(run_lock(workdir)))
    folder = workdir / run_directory.CHECKPOINTS
    writer = CheckpointWriter(folder, keep=config.train.keep)
    stack.enter_context(contextlib.closing(writer))
    yield read_run_state(workdir, config, writer), writer


def read_run_state(workdir: Path, config: Config, checkpoints: Checkpoints) -> RunState:
  """Returns the state of a directory; skips corrupt checkpoints."""

  def look():
    # train.py has checked the settings, but another run may have begun before the lock was taken.
    changes = resuming.changed_settings(workdir, config)
    begun = run_directory.has_begun(workdir)
    step = checkpoints.latest_intact()
    eval_pending = step is not None and checkpoints.is_eval_pending(step)
    return begun, changes, step, eval_pending

  # On a network file system, processes may see different folders for a while: use process 0's.
  begun, changes, step, eval_pending = processes.broadcast_from_first(look)
  history = {'evaluations': []} if step is None else checkpoints.history(step)
  is_last = step is not None and step >= config.train.steps
  done = is_last or is_out_of_patience(history['evaluations'], config.train.patience)
  return RunState(workdir, begun, changes, step, history, eval_pending, done)
