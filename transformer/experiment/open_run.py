"""A run's directory while it trains: locked, with what was there before, and what it records."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from transformer import files
from transformer.config import Config
from transformer.data.corpora import EncodedCorpora
from transformer.data.vocabulary import vocabularies
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.model.flops import update_flops
from transformer.runs import record, resuming, run_directory
from transformer.runs.checkpoint_writer import CheckpointWriter
from transformer.runs.checkpoints import Checkpoints
from transformer.runs.evaluations import is_out_of_patience
from transformer.runs.lock import RunLock
from transformer.system import processes
from transformer.training.step import TrainState
from transformer.training.update import Update


@contextlib.contextmanager
def open_run(workdir: Path, config: Config) -> Iterator['OpenRun']:
  """Locks a directory, and reads what is there; refuses settings that would change its updates."""
  with contextlib.ExitStack() as stack:
    yield OpenRun(workdir, config, stack)


class OpenRun:
  """A directory that this process alone trains in.

  Attributes:
    workdir: the directory.
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
    self.step = None
    self.history = {'evaluations': [], 'meter': {}}
    self.unfinished = False
    self.begun, self.changes, saved = processes.from_first(lambda: self._lock(config))
    self._checkpoints = self._open_checkpoints() if saved else None
    # On a network file system, several processes may see different folders for a while.
    if saved and (step := processes.from_first(self._checkpoints.fall_back)) is not None:
      self.step = step
      self.history = self._checkpoints.history(step)
      self.unfinished = processes.from_first(lambda: self._checkpoints.is_unfinished(step))
    self.done = self.step is not None and (
      self.step >= config.train.steps
      or is_out_of_patience(self.history['evaluations'], config.train.patience)
    )
    self.ended = self.done and not self.unfinished
    self._newest = self.step

  def _lock(self, config: Config) -> tuple[bool, Mapping[str, Any], bool]:
    if self._stack:
      self._stack.enter_context(RunLock(self.workdir))
    # train.py has compared the settings, but another run may have begun before the lock was taken.
    return (
      run_directory.has_begun(self.workdir),
      resuming.changed_settings(self.workdir, config),
      (self.workdir / run_directory.CHECKPOINTS).is_dir(),
    )

  def _open_checkpoints(self) -> Checkpoints:
    folder = self.workdir / run_directory.CHECKPOINTS
    if self._stack is None:
      return Checkpoints(folder)
    return self._stack.enter_context(contextlib.closing(CheckpointWriter(folder, keep=self._keep)))

  def restore(self, update: Update, params: Any) -> TrainState:
    """Returns the state of the newest checkpoint, or else the first one, with `params` if given."""
    if self._checkpoints is None:  # A new run has it only after its settings.
      self._checkpoints = self._open_checkpoints()
    if self.step is None:
      return update.first_state(params)
    return self._checkpoints.restore(self.step, update.state)

  def save(self, state: TrainState, history: dict[str, Any], unfinished: bool = False):
    """Saves a step; if it is unfinished, only if it is not saved, and waits until it is written."""
    step = int(state.step)
    if not unfinished or step != self._newest:
      self._checkpoints.save(state, history, unfinished)
      self._newest = step
    if unfinished:
      self.wait()

  def wait(self):
    """Waits until everything is written."""
    self._checkpoints.wait()

  def check_writes(self):
    """Raises `UserError` if a checkpoint could not be written."""
    self._checkpoints.check()


def record_start(
  run: OpenRun,
  config: Config,
  vocabulary: RunVocabulary,
  facts: Mapping[str, Any],
  update: Update | None = None,
  encoded: EncodedCorpora | None = None,
):
  """Writes the settings, the vocabulary and `run.json`; a run that has ended has no update."""
  workdir = run.workdir
  reproducible = config.train.reproducible
  if run.begun and (run.changes or update):
    # Before the config, so that no change of a setting goes unrecorded.
    record.add_session(workdir, reproducible, run.changes, update is not None, facts['own_code'])
  files.write_sealed(workdir / run_directory.CONFIG, config.to_dict())
  vocabularies.save(vocabulary, workdir)
  if not run.begun:
    parameters = sum(leaf.size for leaf in jax.tree.leaves(update.state.params))
    files.write_sealed(
      workdir / run_directory.RUN,
      record.describe(
        reproducible,
        parameters=parameters,
        counts=encoded.counts,
        flops_per_update=_flops(update, encoded),
        **facts,
      ),
    )


def _flops(update: Update, encoded: EncodedCorpora) -> float | None:
  """Returns the operations of an update, padded positions included; None if not known."""
  rows, *lengths = encoded.batches.shape
  objective = update.objective
  by_token = update_flops(update.model, objective.passes, objective.extra_models, *lengths)
  if by_token is None:
    return None
  return rows * sum(flops * length for flops, length in zip(by_token, lengths, strict=True))
