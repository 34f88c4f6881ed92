"""Writes and restores the checkpoints of a training run with Orbax."""

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from absl import logging

from transformer import files
from transformer.errors import UserError, type_and_message
from transformer.runs import sealing
from transformer.runs.checkpoints import EMA, HISTORY, PARAMS, Checkpoints
from transformer.runs.evaluations import best_evaluation
from transformer.runs.run_directory import EVAL_PENDING, REMOVED
from transformer.system import processes
from transformer.training.step import TrainState

# Checkpoint items that only training needs. `rest` holds the step and the optimizer's state.
_SKIPS = 'skips'
_REST = 'rest'
# Suffix of a checkpoint that Orbax has written but that has no digests yet.
_UNSEALED = '.unsealed'


class CheckpointWriter(Checkpoints):
  """Saves, restores and deletes checkpoints.

  A thread writes a checkpoint while training continues. The folder of a checkpoint gets its final
  name last, so that readers never see a partial checkpoint. Only process 0 seals, renames and
  deletes checkpoints.
  """

  def __init__(self, directory: Path, *, keep: int = 1):
    """Opens a directory; the first checkpoint creates it.

    The directory holds the latest `keep` checkpoints and the best one. A checkpoint with a
    pending evaluation does not count toward `keep`, and the next checkpoint replaces it.
    """
    if processes.is_first():
      _tidy(directory)
    super().__init__(directory)
    self._keep = keep
    self._checkpointer = ocp.AsyncCheckpointer(ocp.CompositeCheckpointHandler())
    self._thread = ThreadPoolExecutor(max_workers=1)
    self._writing: Future[None] | None = None

  def latest_intact(self) -> int | None:
    """Returns the step of the latest intact checkpoint; None if there are no checkpoints.

    Renames each later checkpoint, which is corrupt, to `STEP.damaged`, so that it can be repaired
    by hand and its step can be saved again. Raises `UserError` if all checkpoints are corrupt.
    """
    intact = super().latest_intact()
    for step in [step for step in self.steps if step > (intact or 0)]:
      folder = self._folder(step)
      new_path = files.unused_name(folder.with_name(f'{step}.damaged'))
      folder.rename(new_path)
      self.steps.remove(step)
      logging.warning(
        'moved %s to %s, which may be removed; the run resumes from step %d',
        folder,
        new_path.name,
        intact,
      )
    return intact

  def save(self, state: TrainState, history: dict, eval_pending: bool = False):
    """Starts to write a checkpoint; returns once `state` may be overwritten.

    The `evaluations` of the history decide which checkpoint is the best. The history is JSON data;
    a thread reads it later, so it must not be modified.

    With `eval_pending`, the evaluation of the step may be missing; a later checkpoint of the
    same step replaces this one, which is written before this returns.
    """
    self.wait()
    step = int(state.step)
    parts = {name: ocp.args.StandardSave(item) for name, item in _parts(state).items()}
    parts[HISTORY] = ocp.args.JsonSave(history)
    if eval_pending:
      parts[EVAL_PENDING] = ocp.args.JsonSave({})
    unsealed = self._directory / f'{step}{_UNSEALED}'
    with self._one_line_errors():
      self._directory.mkdir(parents=True, exist_ok=True)
      self._checkpointer.save(unsealed, args=ocp.args.Composite(**parts))
    self._writing = self._thread.submit(self._finish, step, unsealed, history)
    if eval_pending:
      self.wait()

  def _finish(self, step: int, unsealed: Path, history: Mapping):
    """Waits for Orbax, seals and renames the checkpoint, and deletes superfluous ones."""
    with self._one_line_errors():
      self._checkpointer.wait_until_finished()
      if processes.is_first():
        sealing.seal(unsealed, step)
        self._remove({step} & set(self.steps))
        unsealed.rename(self._folder(step))
        files.fsync_folder(self._directory)
        self.steps.append(step)
        self._remove_superfluous(history)

  def restore(self, step: int, like: TrainState) -> TrainState:
    """Returns the training state of a checkpoint, to resume from.

    `like` has the shapes, dtypes and shardings of the state. Also deletes superfluous checkpoints
    that a killed process did not delete.
    """
    targets = _parts(like)
    # Checkpoints saved without train.max_consecutive_nonfinite have no counters of skipped steps.
    if not (self._folder(step) / _SKIPS).is_dir():
      targets.pop(_SKIPS, None)
    args = ocp.args.Composite(
      **{name: ocp.args.StandardRestore(part) for name, part in targets.items()}
    )
    parts = self._read(
      step, lambda folder: self._checkpointer.restore(folder, args=args)
    )
    skips = parts.get(_SKIPS) or jax.tree.map(
      lambda leaf: jnp.zeros_like(leaf, device=leaf.sharding), like.skips
    )
    if processes.is_first():
      self._remove_superfluous(self.history(step))
    rest = parts[_REST]
    return TrainState(
      rest['step'], parts[PARAMS], rest['optimizer'], parts.get(EMA), skips
    )

  def _remove_superfluous(self, history: Mapping):
    """Deletes all checkpoints except the latest, the latest `keep` finished ones and the best."""
    finished = [step for step in self.steps if not self.is_eval_pending(step)]
    kept_steps = {self.steps[-1], *finished[-self._keep :]}
    if best := best_evaluation(history['evaluations']):
      kept_steps.add(best['step'])
    self._remove(set(self.steps) - kept_steps)
    shutil.rmtree(self._directory / REMOVED, ignore_errors=True)

  def _remove(self, steps: Iterable[int]):
    """Moves checkpoints to `removed/`, where no reader looks: a kill leaves no partial one."""
    removed = self._directory / REMOVED
    removed.mkdir(exist_ok=True)
    for step in steps:
      self._folder(step).rename(removed / str(step))
      self.steps.remove(step)

  def wait(self):
    """Waits until all checkpoints are written; raises `UserError` if a write fails."""
    if self._writing:
      self._writing.result()

  def check_for_errors(self):
    """Raises `UserError` if a completed write has failed; does not wait for a pending write."""
    if self._writing and self._writing.done():
      self.wait()

  def close(self):
    """Waits like `wait`, then releases the directory."""
    try:
      self.wait()
    finally:
      self._thread.shutdown()
      with self._one_line_errors():  # Orbax may raise the same error again.
        self._checkpointer.close()

  @contextlib.contextmanager
  def _one_line_errors(self) -> Iterator[None]:
    """Turns any failure to write a checkpoint into a `UserError`.

    With several processes, this process exits at once: the others would wait forever for its
    shards.
    """
    try:
      yield
    except Exception as error:  # Orbax and TensorStore raise many types of errors.
      refusal = UserError(
        f'cannot write a checkpoint to {self._directory}: {type_and_message(error)}; free disk '
        'space or fix permissions, then rerun to resume from the previous checkpoint'
      )
      if jax.process_count() > 1:
        processes.exit_with_error(refusal)
      raise refusal from error


def _tidy(directory: Path):
  """Removes partial checkpoints; restores a removed checkpoint that was never replaced."""
  for leftover in directory.glob(f'*{_UNSEALED}*'):
    shutil.rmtree(leftover)
  newest = max(Checkpoints(directory).steps, default=-1)
  for path in directory.glob(f'{REMOVED}/*'):
    if path.name.isdecimal() and int(path.name) > newest:
      path.rename(directory / path.name)


def _parts(state: TrainState) -> dict:
  parts = {
    PARAMS: state.params,
    EMA: state.average,
    _SKIPS: state.skips,
    _REST: {'step': state.step, 'optimizer': state.optimizer},
  }
  return {name: part for name, part in parts.items() if part is not None}
