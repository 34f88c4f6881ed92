"""The trials of a sweep, and their assignment to workers.

Optuna stores the trials, assigns them to workers, and sends heartbeats to a database. An abandoned
trial is marked as failed, and Optuna's callback stores it again. This file adds:

- A trial keeps its number in all its records, and therefore its directory and checkpoints.
- A failed trial has a reason. Without a reason, its worker has abandoned it.
- In a folder, a worker holds a lock for its trial, since Optuna's journal has no heartbeats.
- The parameters of a trial depend on the config's seed, the trial's number and the earlier trials,
  and not on the worker that samples them.
"""

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import optuna
from absl import logging
from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import GridSampler
from optuna.trial import FrozenTrial, TrialState

from launch.sweeping import identity, storage
from launch.sweeping.records import Study, Trial, is_abandoned
from launch.sweeping.saved import SavedSweep
from launch.sweeping.space import Space
from transformer.config import Config
from transformer.errors import UserError
from transformer.runs import run_directory

TRIALS = 'trials'


class Sweep(SavedSweep):
  """A fixed number of trials, each run by one worker at a time."""

  def __init__(
    self,
    folder: Path,
    space: Space,
    config: Config,
    num_trials: int,
    url: str | None = None,
    keep_best: int | None = None,
  ):
    """Stores the arguments; opens nothing.

    Args:
      folder: the directory of the runs and, without `url`, of the trials.
      space: the search space.
      config: the settings that trials change.
      num_trials: the total number of trials.
      url: a database; the folder's name is the name of the study there.
      keep_best: the number of trials whose checkpoints are kept; None keeps all.
    """
    super().__init__(folder, space.objective, num_trials)
    self.space = space
    self.config = config
    self.url = url
    self.keep_best = keep_best
    self._journal = folder / storage.JOURNAL
    self._claims = folder / storage.CLAIMS
    self._name = storage.study_name(folder, url)
    self._place = (
      f'{self._name} in {storage.without_password(url)}' if url else str(folder)
    )

  def begin(self):
    """Creates or opens the study; raises `UserError` if it belongs to a different sweep."""
    self.folder.mkdir(parents=True, exist_ok=True)
    if self.url and self._journal.exists():
      raise UserError(
        f'{self.folder} holds a sweep without --storage; remove --storage, or choose a different '
        '--workdir'
      )
    path = self.folder / TRIALS if self.url else self._journal
    if not path.exists() and not run_directory.is_unused(self.folder):
      raise UserError(
        f'{self.folder} is not empty and holds no list of trials; choose a different --workdir, '
        'or pass the --storage of its sweep'
      )
    try:
      self._open(creates=not self.url or not path.exists())
    except KeyError as error:
      raise UserError(
        f'{self.folder} holds runs, but {self._place} does not exist; pass the --storage that '
        'this sweep was started with, or choose a different --workdir'
      ) from error
    for folder in (self.folder / TRIALS, self._claims):
      folder.mkdir(exist_ok=True)
    if 'about' in self.study.user_attrs:
      self._check_same_sweep()
    self.study.set_user_attr('about', identity.sweep_identity(self.config, self.space))
    self.study.requeue_abandoned()
    ended = sum(record.state.is_finished() for record in self.study.records())
    if self.num_trials < ended:
      raise UserError(
        f'--trials={self.num_trials} is fewer than the {ended} that {self._place} has finished; '
        f'pass at least {ended}, or choose a different --workdir'
      )
    self.study.set_user_attr('num_trials', self.num_trials)

  def join(self):
    """Opens a study that another process has created; raises `UserError` if there is none."""
    try:
      self._open()
    except KeyError as error:
      raise UserError(
        f'{self._place} does not contain the sweep of this worker; start the sweep without '
        '--worker'
      ) from error
    self._check_same_sweep()

  def num_unfinished(self) -> int:
    """Returns the number of unfinished trials."""
    return self.num_unstarted() + sum(
      is_abandoned(trial) or not trial.state.is_finished()
      for trial in self.started_trials()
    )

  def run_next(self, train: Callable[[Trial], float]) -> FrozenTrial | None:
    """Runs the first available trial and returns it; returns None if no trial is available.

    `train` returns the value of a trial, or raises `optuna.TrialPruned`. For a failed trial,
    `train` sets the attribute `reason`, and returns NaN. On any other exception, the trial is left
    to the next worker.
    """
    number = None
    is_taken = False

    def objective(trial):
      nonlocal number, is_taken
      number = self.study.number(trial.number)
      try:
        if not self.url:
          claim_stack.enter_context(storage.claim(self._claims, number))
        turn_stack.close()
        if number >= self.num_trials:
          raise UpdateFinishedTrialError
        self.study.sampler = self._sampler(number)
        trial.set_user_attr('host', socket.gethostname())
        return train(Trial(trial, number))
      except UpdateFinishedTrialError:
        is_taken = True
        raise

    with contextlib.ExitStack() as claim_stack, contextlib.ExitStack() as turn_stack:
      if not self.url:
        turn_stack.enter_context(storage.choice_lock(self._claims))
      if not self._is_free(socket.gethostname()):
        turn_stack.close()
        if not self._is_free():
          return None
      try:
        self.study.optimize(objective, n_trials=1)
      except BaseException:
        self.study.requeue_abandoned()
        if not is_taken:
          raise
        logging.warning('trial %d: another worker has it', number)
    begun = self.started_trials()
    return begun[number] if number < len(begun) else None

  def _open(self, creates: bool = False):
    opened = storage.open_trials(self.folder, self.url, creates)
    if creates:
      optuna.create_study(
        storage=opened,
        study_name=self._name,
        direction=self.direction,
        load_if_exists=True,
      )
    self.study = Study(self._name, opened, self._sampler(0), self.space.pruner())

  def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
    """Returns the sampler of a trial; a grid has one order for all trials."""

    def seeded(number):
      seed = np.random.SeedSequence((self.config.seed, number)).generate_state(1)[0]
      return self.space.sampler(int(seed))

    sampler = seeded(0)
    return sampler if isinstance(sampler, GridSampler) else seeded(number)

  def num_unstarted(self) -> int:
    """Returns the number of trials that have not been started."""
    if self.study.user_attrs.get('exhausted'):
      return 0
    return max(0, self.num_trials - len(self.study.records()))

  def _is_free(self, host: str | None = None) -> bool:
    """Returns whether a trial is available, including trials of dead workers on `host` (None: any).

    Checking workers on other hosts takes a while.
    """
    self._release(host)
    return self.num_unstarted() > 0 or any(
      trial.state == TrialState.WAITING for trial in self.started_trials()
    )

  def _release(self, host: str | None):
    """Stores the trials of dead workers again."""
    if self.url:
      optuna.storages.fail_stale_trials(self.study)
      return
    for number, record in enumerate(self.study.records()):
      record_host = record.user_attrs.get('host', host)
      if record.state == TrialState.RUNNING and host in (None, record_host):
        with contextlib.suppress(UserError), storage.claim(self._claims, number):
          self.study.tell(record.number, state=TrialState.FAIL, skip_if_finished=True)
          self.study.requeue_abandoned()

  def _check_same_sweep(self):
    """Raises `UserError` if trials would not be comparable with the earlier ones."""
    if differences := identity.differences(
      self.study.user_attrs['about'], self.config, self.space
    ):
      raise UserError(
        f'{self._place} belongs to a different sweep: {"; ".join(differences)}; choose '
        f'a different --workdir, or the same settings'
      )
