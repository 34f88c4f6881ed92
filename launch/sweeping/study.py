"""The study of a sweep: its trials, and which worker runs each of them.

Optuna stores the trials. With a database, it also notices by heartbeats that a worker is gone, and
then adds a new trial with the same parameters. This module adds three things:

- A trial that is run again keeps its number, and so its directory and checkpoints. Optuna's new
  trial has a new number, but counts here as another record of the same trial.
- In a folder, a worker holds a lock for its trial, since Optuna's journal has no heartbeats.
- The parameters of a trial depend on the config's seed, its number and the trials before it, and
  not on the worker that draws them.
"""

import contextlib
import copy
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from absl import logging
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages._heartbeat import HeartbeatThread
from optuna.trial import FrozenTrial, TrialState

from launch.sweeping import identity
from launch.sweeping.space import Space
from launch.sweeping.storage import (
    JOURNAL,
    Heartbeat,
    open_database,
    open_journal,
    without_experimental_warnings,
    without_password,
)
from transformer.config import Config
from transformer.errors import UserError
from transformer.runs import run_directory
from transformer.runs.lock import LOCK, RunLock

TRIALS = 'trials'
_CLAIMS = 'claims'
# The study's name in a folder. Optuna's Hyperband also assigns trials to brackets by it.
_STUDY = 'sweep'
# The attribute that holds a trial's number in all its records.
_NUMBER = 'run'


class Sweep:
  """A fixed number of trials, each run by one worker at a time.

  All trials are stored from the start in state WAITING, so a kill leaves their count as it is.
  """

  def __init__(self, folder: Path, space: Space, config: Config, trials: int,
               storage: str | None = None):
    """Prepares the sweep, and opens nothing yet.

    Args:
      folder: the directory of the runs and, without `storage`, of the trials.
      space: the search space.
      config: the settings that trials change.
      trials: the number of trials in all.
      storage: the URL of a database; the folder's name is the name of the study there.
    """
    self.folder, self.space, self.config, self.trials = folder, space, config, trials
    self.study: optuna.Study | None = None
    self._url = storage
    self._journal = folder / JOURNAL
    self._name = folder.resolve().name if storage else _STUDY
    self._place = f'{self._name} in {without_password(storage)}' if storage else str(folder)

  def begin(self):
    """Opens or creates the study, and adds the trials that it lacks.

    Raises:
      UserError: the study belongs to another sweep, the directory holds something else, or the
        database cannot be used.
    """
    self.folder.mkdir(parents=True, exist_ok=True)
    if self._url and self._journal.exists():
      raise UserError(f'{self.folder} holds a sweep without --storage; leave --storage out, or '
                      f'choose another --workdir')
    known = self.folder / TRIALS if self._url else self._journal
    if not known.exists() and not run_directory.holds_nothing(self.folder):
      raise UserError(f'{self.folder} is not empty and holds no sweep; choose another --workdir')
    self._open()
    (self.folder / TRIALS).mkdir(parents=True, exist_ok=True)
    try:
      self.study = self._load()
    except KeyError:  # Another machine may create it at the same time.
      self.study = optuna.create_study(storage=self._storage, study_name=self._name,
                                       direction=self.space.direction, load_if_exists=True)
    if 'about' in self.study.user_attrs:
      self._check_same_sweep()
    about = identity.about(self.config, self.space)
    if self.study.user_attrs.get('about') != about:
      self.study.set_user_attr('about', about)
    trials = self.all()
    finished = sum(each.state.is_finished() for each in trials)
    if self.trials < finished:
      raise UserError(f'--trials={self.trials} is fewer than the {finished} that {self._place} '
                      f'has finished; give at least {finished}, or choose another --workdir')
    for number in range(len(trials), self.trials):
      self.study.add_trial(optuna.create_trial(state=TrialState.WAITING,
                                               user_attrs={_NUMBER: number}))

  def join(self):
    """Opens the study that another process has begun.

    Raises:
      UserError: there is none, it belongs to another sweep, or the database cannot be used.
    """
    try:
      if not self._url and not self._journal.exists():
        raise KeyError(self._journal)
      self._open()
      self.study = self._load()
    except KeyError as error:
      raise UserError(f'{self._place} should hold the sweep of this worker; start the sweep '
                      f'without --worker') from error
    self._check_same_sweep()

  def all(self) -> list[FrozenTrial]:
    """Returns the trials in order, each by its last record."""
    trials = {}
    for record in self.study.get_trials(deepcopy=False):
      number = number_of(record)
      # Two processes that begin a sweep at once may both add a trial. Then the first one counts.
      if number not in trials or 'failed_trial' in record.system_attrs:
        trials[number] = copy.copy(record)
        trials[number].number = number
    return [trials[number] for number in sorted(trials)]

  def unfinished(self) -> list[FrozenTrial]:
    """Returns the trials that have not ended.

    When the sampler has tried everything, trials without parameters are left out.
    """
    exhausted = self.study.user_attrs.get('exhausted', False)
    return [each for each in self.all()[:self.trials] if not each.state.is_finished()
            and not (exhausted and each.state == TrialState.WAITING
                     and 'host' not in each.user_attrs)]

  def best(self) -> FrozenTrial | None:
    """Returns the complete trial with the best value; among equal values, the first trial."""
    done = [each for each in self.all() if each.state == TrialState.COMPLETE]
    pick = max if self.space.direction == 'maximize' else min
    return pick(done, key=lambda each: each.value, default=None)

  def claim(self, stack: contextlib.ExitStack) -> optuna.trial.Trial | None:
    """Takes the first trial that no worker runs.

    Args:
      stack: leaving it releases the trial.

    Returns:
      A trial in state RUNNING, with the parameters drawn before; None if no trial is free.
    """
    here = socket.gethostname()
    if self._url:
      with without_experimental_warnings():
        optuna.storages.fail_stale_trials(self.study)

    def order(trial):
      # It takes a while to find out whether a worker on another host is alive. So the trials of
      # other hosts come last, as do the trials that another worker is just taking.
      if trial.state == TrialState.WAITING:
        return (self.folder / _CLAIMS / str(trial.number) / LOCK).exists(), trial.number
      return trial.user_attrs.get('host', here) != here, trial.number

    tried = set()
    # The trials are read again each time, since other workers take some in the meantime.
    while left := [each for each in self.unfinished() if each.number not in tried]:
      chosen = min(left, key=order)
      tried.add(chosen.number)
      take = self._take_in_database if self._url else self._take_in_folder
      with contextlib.ExitStack() as held:
        if not take(chosen, held):
          continue
        stack.enter_context(held.pop_all())
        seed = np.random.SeedSequence((self.config.seed, chosen.number)).generate_state(1)[0]
        trial = optuna.trial.Trial(
            self._load(sampler=self.space.sampler(int(seed)), pruner=self.space.pruner()),
            chosen._trial_id)
        trial.set_user_attr('host', here)
        return trial
    return None

  def finish(self, trial: optuna.trial.Trial, state: TrialState, value: float | None = None):
    """Stores how a trial ended."""
    try:
      trial.study.tell(trial, value, state)
    except UpdateFinishedTrialError:
      raise
    except RuntimeError:
      # A sampler that has tried everything stops the study, which raises after storing the trial.
      if not self.all()[number_of(trial)].state.is_finished():
        raise
      self.study.set_user_attr('exhausted', True)

  def put_back(self, trial: optuna.trial.Trial):
    """Makes a trial wait for the next worker."""
    self._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)

  def _open(self):
    self._storage = open_database(self._url) if self._url else open_journal(self._journal)

  def _load(self, **arguments) -> optuna.Study:
    return optuna.load_study(storage=self._storage, study_name=self._name, **arguments)

  def _take_in_folder(self, trial: FrozenTrial, held: contextlib.ExitStack) -> bool:
    """Takes a trial by its lock, also from a worker that is gone."""
    folder = self.folder / _CLAIMS / str(trial.number)
    # Created here: a lock removes a folder that it has created, and other workers may need it.
    folder.mkdir(parents=True, exist_ok=True)
    try:
      held.enter_context(RunLock(folder))
    except UserError:
      return False
    state = self.all()[trial.number].state
    if state == TrialState.WAITING:
      self._storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING)
    elif state == TrialState.RUNNING:
      logging.info('trial %d was left by a process that is gone', trial.number)
    return not state.is_finished()

  def _take_in_database(self, trial: FrozenTrial, held: contextlib.ExitStack) -> bool:
    """Takes a waiting trial, and sends heartbeats until `held` is left."""
    if trial.state != TrialState.WAITING:
      return False
    # Sent first, since a running trial with an old heartbeat of an earlier worker counts as stale.
    self._storage.record_heartbeat(trial._trial_id)
    try:
      if not self._storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING):
        return False
    except UpdateFinishedTrialError:
      return False
    if 'failed_trial' in trial.system_attrs:
      logging.info('trial %d was left by a process that is gone', trial.number)
    held.enter_context(HeartbeatThread(trial._trial_id, Heartbeat(self._storage)))
    return True

  def _check_same_sweep(self):
    """Refuses a sweep whose trials could not be compared with the earlier ones."""
    differences = identity.differences(self.study.user_attrs['about'], self.config, self.space,
                                       self._trained())
    if differences:
      raise UserError(f'{self._place} belongs to another sweep: {"; ".join(differences)}; choose '
                      f'another --workdir, or the same settings')

  def _trained(self) -> Iterator[tuple[dict[str, Any], dict[str, str] | None]]:
    """Yields the settings of each trial that counts, and the fingerprints of its data.

    The fingerprints are None if the trial's run is not here.
    """
    for trial in self.all():
      run, settings = self.folder / TRIALS / str(trial.number), trial.user_attrs.get('settings')
      if settings and trial.state != TrialState.FAIL:
        yield settings, (run_directory.read_fingerprints(run)
                         if (run / run_directory.RUN).exists() else None)


def number_of(trial: optuna.trial.BaseTrial) -> int:
  """Returns a trial's number, the same for all its records."""
  return trial.user_attrs.get(_NUMBER, trial.number)  # Older sweeps have one record a trial.
