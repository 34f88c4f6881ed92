"""The checkpoint that a run saves when a signal asks it to stop."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from transformer.errors import UserError
from transformer.runs import digests
from transformer.runs.checkpoints import Checkpoints
from transformer.system import processes
from transformer.training.step import TrainState


class SignalCheckpoint:
  """At most one checkpoint, in a directory of its own.

  So it is never kept, averaged or chosen as the best, and readers of a run do not see it.

  Attributes:
    step: the step of the checkpoint, or None if there is no checkpoint.
  """

  def __init__(self, directory: str | os.PathLike):
    """Looks for a checkpoint in the directory, which `save` creates."""
    self._directory = Path(directory)
    self.step: int | None = processes.from_first(self._find)

  def _find(self) -> int | None:
    try:
      names = os.listdir(self._directory)
    except FileNotFoundError:
      return None
    return max((int(name) for name in names if name.isdecimal()), default=None)

  def is_whole(self) -> bool:
    """Returns whether there is a checkpoint, byte for byte as it was saved."""
    return self.step is not None and processes.from_first(lambda: self._find_damage() is None)

  def _find_damage(self) -> str | None:
    return digests.find_damage(self._directory / str(self.step), self.step)

  def set_aside(self, before: int | None):
    """Renames the damaged checkpoint.

    Args:
      before: the step of the checkpoint that the run goes on from; None if there is none.

    Raises:
      UserError: `before` is None.
    """
    processes.from_first(lambda: self._set_aside(before))
    self.step = None

  def _set_aside(self, before: int | None):
    damage = self._find_damage()
    if before is None:
      folder = self._directory / str(self.step)
      raise UserError(f'{folder} is damaged: {damage}; there is no other checkpoint; restore it '
                      f'from a copy, or train anew in another --workdir')
    digests.move_aside(self._directory, damage, before)

  def save(self, state: TrainState, history: dict[str, Any]):
    """Saves the state, and waits until it is written; raises `UserError` if that fails."""
    with contextlib.closing(Checkpoints(self._directory)) as checkpoints:
      checkpoints.save(state, history)
    self.step = int(state.step)

  def restore(self, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
    """Reads the state and its history, as `Checkpoints.restore` does."""
    with contextlib.closing(Checkpoints(self._directory, read_only=True)) as checkpoints:
      return checkpoints.restore(self.step, like)

  def remove(self):
    """Deletes the checkpoint, whole or partly written."""
    self.step = None
    if processes.is_first():
      shutil.rmtree(self._directory, ignore_errors=True)
