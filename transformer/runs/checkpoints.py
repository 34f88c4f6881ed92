"""The checkpoints of a run, which Orbax writes: the latest, the best, the mean of several."""

import copy
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from transformer.errors import UserError, is_out_of_memory, type_and_message
from transformer.runs import sealing
from transformer.runs.evaluations import best_evaluation, best_steps
from transformer.runs.orbax_manager import REMOVED, UNSEALED, one_line_errors, open_manager
from transformer.runs.run_directory import UNFINISHED, check_path
from transformer.system import processes
from transformer.training.step import TrainState

# The parts of a checkpoint. `rest` is the number of updates and the optimizer's state.
PARAMS, AVERAGE, SKIPS, _REST, _HISTORY = 'params', 'average', 'skips', 'rest', 'history'


class Checkpoints:
  """The folders `STEP/` under a directory: the latest few checkpoints and the best.

  A checkpoint holds the training state, the history of evaluations, and a digest of each of its
  files. Every byte is compared with its digest before anything is used. A thread writes a
  checkpoint while training goes on. Its folder gets its name last, so no half of it is seen.
  """

  def __init__(self, directory: str | os.PathLike, *, keep: int = 1, read_only: bool = False):
    """Opens a directory, or creates it unless `read_only`, with which nothing is deleted either.

    The best checkpoint stays in addition to the latest `keep`. A later checkpoint replaces an
    unfinished one, which does not count.
    """
    check_path(directory)
    self._directory = Path(directory).absolute()
    self._keep, self._read_only = keep, read_only
    self._verified: set[int] = set()
    self._evaluations: Sequence[dict[str, Any]] = ()
    self._saving = False
    if not read_only:
      processes.from_first(self._remove_unsealed)
    self._manager = open_manager(self._directory, read_only, self)
    # On a network file system, several processes may see different folders for a while.
    self._unfinished = set(self._marked() if read_only else processes.from_first(self._marked))

  def _remove_unsealed(self):
    for left in self._directory.glob(f'*{UNSEALED}*'):
      shutil.rmtree(left)

  def _marked(self) -> list[int]:
    return [step for step in self.steps() if (self._directory / str(step) / UNFINISHED).is_dir()]

  def steps(self) -> list[int]:
    """The steps that have a checkpoint, ascending."""
    return sorted(self._manager.all_steps())

  def is_unfinished(self, step: int) -> bool:
    """Whether training saved the step for a signal, so that its evaluation may be missing."""
    return step in self._unfinished

  def fall_back(self) -> int | None:
    """Returns the step of the latest undamaged checkpoint, or None if there are no checkpoints.

    Moves later checkpoints, which are damaged, aside, so that their steps can be saved again; a
    person may repair them. Raises `UserError` if all checkpoints are damaged.
    """
    step = processes.from_first(lambda: sealing.move_damaged_aside(self._directory, self.steps()))
    self._verified |= {step} - {None}
    self._unfinished = {unfinished for unfinished in self._unfinished if unfinished <= (step or 0)}
    self._manager.reload()
    return step

  def resolve(self, which: str) -> int:
    """Returns the step of an undamaged checkpoint that `best`, `latest` or a number names."""
    steps = self.steps()
    if not steps:
      raise UserError(f'{self._directory} holds no checkpoint; train the run first')
    step = which
    if which in ('best', 'latest'):
      # A run that was stopped before its first evaluation has only a latest.
      best = which == 'best' and best_evaluation(self.history(steps[-1])['evaluations'])
      step = str(best['step'] if best else steps[-1])
    if not step.isdecimal() or int(step) not in steps:
      gone = '' if step == which else f', whose step {step} is not there'
      raise UserError(f'checkpoint must be best, latest or one of the steps '
                      f'{", ".join(map(str, steps))}; got {which!r}{gone}')
    self._verify(int(step))
    return int(step)

  def save(self, state: TrainState, history: dict[str, Any], unfinished: bool = False):
    """Starts to write a checkpoint; returns once the state may be changed again.

    An `unfinished` step may lack its evaluation. Its checkpoint is deleted before the finished one
    is written. The `evaluations` of the history, JSON data, tell which checkpoint is the best.
    """
    self.wait()
    step = int(state.step)
    parts = {name: ocp.args.StandardSave(item) for name, item in _parts(state).items()}
    # Orbax reads the history later, in a thread, while the caller's may grow.
    parts[_HISTORY] = ocp.args.JsonSave(copy.deepcopy(history))
    if step in self._unfinished:
      self._manager.delete(step)
      self._unfinished.remove(step)
    if unfinished:
      parts[UNFINISHED] = ocp.args.JsonSave({})
      self._unfinished.add(step)
    self._evaluations = history['evaluations']
    self._saving = True
    with one_line_errors(self._directory):
      if not self._manager.save(step, args=ocp.args.Composite(**parts)):
        raise FileExistsError(f'step {self._manager.latest_step()} is there; {step} is no later')

  def restore(self, step: int, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
    """Returns the state and the history of a checkpoint, to go on with training.

    `like` has the shapes, types and shardings to restore to. Deletes the checkpoints that a killed
    process was about to delete.
    """
    wanted = _parts(like)
    # A run that was resumed with train.skip_nonfinite has older checkpoints without counters.
    if not (self._directory / str(step) / SKIPS).is_dir():
      wanted.pop(SKIPS, None)
    parts = self._read(step, wanted, history=True)
    skips = parts.get(SKIPS)
    if skips is None:
      skips = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding),
                           like.skips)
    if not self._read_only:
      self._evaluations = parts[_HISTORY]['evaluations']
      for other in set(self.steps()) - self._kept(self.steps()):
        self._manager.delete(other)
      self._empty_removed()
    return TrainState(parts[_REST]['step'], parts[PARAMS], parts[_REST]['optimizer'],
                      parts.get(AVERAGE), skips), parts[_HISTORY]

  def average_params(self, steps: list[int], like, item: str = PARAMS):
    """Reads parameters (or moving averages) alone; several become their mean (section 6.1)."""
    total = self._read(steps[0], {item: like})[item]
    for step in steps[1:]:
      total = jax.tree.map(jnp.add, total, self._read(step, {item: like})[item])
    return total if len(steps) == 1 else jax.tree.map(lambda leaf: leaf / len(steps), total)

  def history(self, step: int) -> dict[str, Any]:
    """Reads the history of a checkpoint, and nothing else."""
    return self._read(step, {}, history=True)[_HISTORY]

  def _read(self, step: int, items: dict[str, Any], history: bool = False):
    self._verify(step)
    parts = {name: ocp.args.StandardRestore(like) for name, like in items.items()}
    if history:
      parts[_HISTORY] = ocp.args.JsonRestore()
    try:
      return self._manager.restore(step, args=ocp.args.Composite(**parts))
    except Exception as error:  # Orbax and TensorStore raise many types.
      if is_out_of_memory(error):
        raise
      raise self._refusal(step, f'is as it was written, and cannot be read or does not fit the '
                          f'run\'s config.json ({type_and_message(error)[:200]})') from error

  def _verify(self, step: int):
    """Refuses a checkpoint that differs from what was written; compares each only once."""
    if step not in self._verified:
      if damage := sealing.find_damage(self._directory / str(step), step):
        raise self._refusal(step, f'is damaged: {damage}')
      self._verified.add(step)

  def _refusal(self, step: int, problem: str) -> UserError:
    folder = self._directory / str(step)
    if not folder.exists():
      return UserError(f'{folder} was there and has been removed, as a run in training removes old '
                       f'checkpoints; start again, or choose another checkpoint')
    return UserError(f'{folder} {problem}; restore it from a copy, or choose another checkpoint')

  def should_preserve(self, checkpoints, *, context) -> list[bool]:
    """Tells Orbax which checkpoints stay."""
    del context
    kept = self._kept([checkpoint.step for checkpoint in checkpoints])
    return [checkpoint.step in kept for checkpoint in checkpoints]

  def _kept(self, steps: Sequence[int]) -> set[int]:
    """Returns those of the steps, ascending, whose checkpoints stay."""
    finished = [step for step in steps if step not in self._unfinished]
    return {*finished[-self._keep:], *steps[-1:],
            *best_steps(self._evaluations, finished, self._keep)}

  def wait(self):
    """Waits until everything is written; raises `UserError` if that fails."""
    with one_line_errors(self._directory):
      self._manager.wait_until_finished()
    self._saving = False
    self._empty_removed()

  def check(self):
    """Raises `UserError` if a write has failed; does not wait for one that goes on."""
    # Orbax's `check_for_errors` does not see the errors that its own thread has met.
    if self._saving and not self._manager.is_saving_in_progress():
      self.wait()

  def close(self):
    """Waits as `wait` does, and releases the directory."""
    try:
      self.wait()
    finally:
      with one_line_errors(self._directory):  # Orbax may raise an error again.
        self._manager.close()

  def _empty_removed(self):
    if processes.is_first() and not self._read_only:
      shutil.rmtree(self._directory / REMOVED, ignore_errors=True)


def _parts(state: TrainState) -> dict[str, Any]:
  parts = {PARAMS: state.params, AVERAGE: state.average, SKIPS: state.skips,
           _REST: {'step': state.step, 'optimizer': state.optimizer}}
  return {name: part for name, part in parts.items() if part is not None}
