"""What a run saves because a signal asks it to stop."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from transformer.errors import UserError
from transformer.training import digests
from transformer.training.checkpoints import Checkpoints, move_aside
from transformer.training.step import TrainState


class SignalCheckpoint:
  """A checkpoint of which there is one at most.

  It lies in a directory of its own, so that it counts neither towards those that are
  kept, nor as the best, nor in an average, and whoever reads a run does not see it.
  """

  def __init__(self, directory: str | os.PathLike):
    """Names the directory; it is made when there is something to save."""
    self._directory = Path(directory)

  def step(self) -> int | None:
    """The step that it was saved at, or None if there is none."""
    if not self._directory.is_dir():
      return None
    with contextlib.closing(Checkpoints(self._directory, read_only=True)) as checkpoints:
      return max(checkpoints.steps(), default=None)

  def damage(self) -> str | None:
    """What about it is not as it was saved, in words; None if it is whole. It is to be there."""
    step = self.step()
    return digests.damage(self._directory / str(step), step)

  def set_aside(self, before: int | None):
    """Moves it, which is damaged, out of the way.

    Args:
      before: the step that the run goes on from; None if there is none.

    Raises:
      UserError: there is none to go on from.
    """
    found = self.damage()
    if before is None:
      folder = self._directory / str(self.step())
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

  def restore(self, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
    """Does what `Checkpoints.restore` does."""
    with contextlib.closing(Checkpoints(self._directory, read_only=True)) as checkpoints:
      return checkpoints.restore(max(checkpoints.steps()), like)

  def remove(self):
    """Removes it, once a later checkpoint is complete, or what a killed process left of one."""
    shutil.rmtree(self._directory, ignore_errors=True)
