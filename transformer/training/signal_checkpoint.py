"""What a run saves because a signal asks it to stop."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from transformer.errors import UserError
from transformer.training import digests, processes
from transformer.training.checkpoints import Checkpoints, move_aside
from transformer.training.step import TrainState


class SignalCheckpoint:
  """A checkpoint of which there is one at most.

  It lies in a directory of its own, so that it counts neither towards those that are
  kept, nor as the best, nor in an average, and whoever reads a run does not see it.

  Attributes:
    step: the step that it was saved at, or None if there is none.
  """

  def __init__(self, directory: str | os.PathLike):
    """Looks into the directory, which is made when there is something to save."""
    self._directory = Path(directory)
    self.step: int | None = processes.from_first(self._find)

  def _find(self) -> int | None:
    steps = [int(path.name) for path in self._directory.glob('*') if path.name.isdecimal()]
    return max(steps, default=None)

  def is_whole(self) -> bool:
    """Whether it is there, and byte for byte as it was saved."""
    return self.step is not None and processes.from_first(lambda: self._damage() is None)

  def _damage(self) -> str | None:
    return digests.damage(self._directory / str(self.step), self.step)

  def set_aside(self, before: int | None):
    """Moves it, which is damaged, out of the way.

    Args:
      before: the step that the run goes on from; None if there is none.

    Raises:
      UserError: there is none to go on from.
    """
    processes.from_first(lambda: self._set_aside(before))
    self.step = None

  def _set_aside(self, before: int | None):
    found = self._damage()
    if before is None:
      folder = self._directory / str(self.step)
      raise UserError(f'{folder} is damaged: {found}; there is no other checkpoint; restore it '
                      f'from a copy, or train anew in another --workdir')
    move_aside(self._directory, found, before)

  def save(self, state: TrainState, history: dict[str, Any]):
    """Saves, and waits until that is done.

    Raises:
      UserError: it cannot be written.
    """
    with contextlib.closing(Checkpoints(self._directory)) as checkpoints:
      checkpoints.save(state, history)
    self.step = int(state.step)

  def restore(self, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
    """Does what `Checkpoints.restore` does."""
    with contextlib.closing(Checkpoints(self._directory, read_only=True)) as checkpoints:
      return checkpoints.restore(self.step, like)

  def remove(self):
    """Removes it, once a later checkpoint is complete, or what a killed process left of one."""
    self.step = None
    if processes.is_first():
      shutil.rmtree(self._directory, ignore_errors=True)
