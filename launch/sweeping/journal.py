"""The journal of a sweep: its trials, and who runs which."""

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from absl import logging
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from launch.sweeping.space import Space
from transformer.config import Config, flatten
from transformer.errors import UserError
from transformer.training import run_directory
from transformer.training.lock import LOCK, RunLock

JOURNAL, TRIALS = 'journal.log', 'trials'
_CLAIMS = 'claims'
# Also a part of how some pruners divide trials.
_STUDY = 'sweep'
# Whoever holds the journal for longer than it takes to write a line was killed.
_KILLED_SECONDS = 30


class Sweep:
  """Trials with numbers from 0, each run by one process at a time, in a directory.

  All of them stand in Optuna's journal from the start, waiting, so that their number is
  what was asked for, however often and by whatever is killed. Who runs one holds a lock of its
  number. One that is said to be running, and whose lock no one holds, was left: whoever
  takes it goes on with the same parameters in the same directory. What a trial draws is a
  function of the config's seed, its number and the trials before it, so that it does not
  depend on which worker draws.
  """

  def __init__(self, folder: Path, space: Space, config: Config, trials: int):
    """Opens nothing yet.

    Args:
      folder: where the journal and the runs are.
      space: what is searched.
      config: the settings that a trial changes.
      trials: how many there are to be.
    """
    self.folder, self.space, self.config, self.trials = folder, space, config, trials
    self.study: optuna.Study | None = None

  def begin(self):
    """Opens the journal, makes it if there is none, and lines up the trials that it lacks.

    Raises:
      UserError: the directory is another sweep's, or holds something else.
    """
    path = self.folder / JOURNAL
    if not path.exists() and not run_directory.holds_nothing(self.folder):
      raise UserError(f'{self.folder} is not empty and holds no sweep; choose another --workdir')
    self._storage = _open(path)
    (self.folder / TRIALS).mkdir(exist_ok=True)
    try:
      self.study = optuna.load_study(storage=self._storage, study_name=_STUDY)
    except KeyError:
      self.study = optuna.create_study(storage=self._storage, study_name=_STUDY,
                                       direction=self.space.direction)
    about = self._about()
    if 'about' not in self.study.user_attrs:
      self.study.set_user_attr('about', about)
    _check_same_sweep(self.folder, self.study.user_attrs['about'], about)
    ended = [each for each in self.all() if each.state.is_finished()]
    if self.trials < len(ended):
      raise UserError(f'--trials={self.trials} is fewer than the {len(ended)} that {self.folder} '
                      f'has; give as many, or choose another --workdir')
    for _ in range(len(self.all()), self.trials):
      self.study.add_trial(optuna.create_trial(state=TrialState.WAITING))

  def join(self):
    """Opens the journal that another process has begun.

    Raises:
      UserError: there is none, or it is another sweep's.
    """
    path = self.folder / JOURNAL
    if not path.exists():
      raise UserError(f'{path} should hold the sweep that a worker is for; start it without '
                      f'--worker')
    self._storage = _open(path)
    self.study = optuna.load_study(storage=self._storage, study_name=_STUDY)
    _check_same_sweep(self.folder, self.study.user_attrs['about'], self._about())

  def all(self) -> list[FrozenTrial]:
    """The trials as they stand, in order."""
    return self.study.get_trials(deepcopy=False)

  def unfinished(self) -> list[FrozenTrial]:
    """Those of the trials asked for that are still to be run to their end."""
    exhausted = self.study.user_attrs.get('exhausted', False)
    return [each for each in self.all()[:self.trials] if not each.state.is_finished()
            and not (exhausted and each.state == TrialState.WAITING and not each.user_attrs)]

  def best(self) -> FrozenTrial | None:
    """The trial with the best value of those that came to their end; of equals the first."""
    done = [each for each in self.all() if each.state == TrialState.COMPLETE]
    pick = max if self.space.direction == 'maximize' else min
    return pick(done, key=lambda each: each.value, default=None)

  def claim(self, stack: contextlib.ExitStack) -> optuna.trial.Trial | None:
    """Takes the first trial that no one runs.

    Args:
      stack: on leaving it, the trial is let go.

    Returns:
      A trial in state RUNNING, with what was drawn for it before; None if there is none to take.
    """
    here = socket.gethostname()

    def order(trial):
      # Whether another host is alive may take a while to see, so its trials come last, and those
      # that someone, who may be elsewhere, is just taking.
      if trial.state == TrialState.WAITING:
        return (self.folder / _CLAIMS / str(trial.number) / LOCK).exists(), trial.number
      return trial.user_attrs.get('host', here) != here, trial.number

    tried = set()
    # Looked at anew each time, since others have gone on in the meantime.
    while left := [each for each in self.unfinished() if each.number not in tried]:
      number = min(left, key=order).number
      tried.add(number)
      folder = self.folder / _CLAIMS / str(number)
      # Made here, lest one holder remove it while another is about to take the lock.
      folder.mkdir(parents=True, exist_ok=True)
      with contextlib.ExitStack() as held:
        try:
          held.enter_context(RunLock(folder))
        except UserError:
          continue
        state = self.all()[number].state
        if state.is_finished():
          continue
        identifier = self._identifier(number)
        if state == TrialState.WAITING:
          self._storage.set_trial_state_values(identifier, TrialState.RUNNING)
        else:
          logging.info('trial %d was left by a process that is gone', number)
        stack.enter_context(held.pop_all())
        seed = np.random.SeedSequence((self.config.seed, number)).generate_state(1)[0]
        study = optuna.load_study(storage=self._storage, study_name=_STUDY,
                                  sampler=self.space.sampler(int(seed)),
                                  pruner=self.space.pruner())
        trial = optuna.trial.Trial(study, identifier)
        trial.set_user_attr('host', here)
        return trial
    return None

  def finish(self, trial: optuna.trial.Trial, state: TrialState, value: float | None = None):
    """Notes how a trial ended."""
    try:
      trial.study.tell(trial, value, state)
    except RuntimeError:
      # So a sampler says that it has tried all there is; the trial was told before.
      if not self.all()[trial.number].state.is_finished():
        raise
      self.study.set_user_attr('exhausted', True)

  def put_back(self, trial: optuna.trial.Trial):
    """Leaves a trial to whoever takes it next."""
    self._storage.set_trial_state_values(self._identifier(trial.number), TrialState.WAITING)

  def _identifier(self, number: int) -> int:
    study = self._storage.get_study_id_from_name(_STUDY)
    return self._storage.get_trial_id_from_study_id_trial_number(study, number)

  def _about(self) -> dict[str, Any]:
    """What must stay the same for as long as the sweep goes on."""
    return json.loads(json.dumps({'settings': flatten(self.config.to_dict()),
                                  'space': self.space.text}))


class _Lock(JournalFileOpenLock):
  """Optuna's lock of a journal; whoever has it finds whole lines, and so adds a whole one.

  What a full disk, or a machine that went down, leaves of a line is taken away. Optuna's other
  lock, a link, is never taken from the dead where the path is not absolute.
  """

  def __init__(self, path: Path):
    super().__init__(str(path), _KILLED_SECONDS)
    self._path = path

  def acquire(self) -> bool:
    taken = super().acquire()
    with self._path.open('rb+') as file:
      size = file.seek(0, os.SEEK_END)
      file.seek(max(0, size - 1))
      if file.read() not in (b'', b'\n'):
        file.seek(0)
        file.truncate(file.read().rfind(b'\n') + 1)
    return taken


def _open(path: Path) -> JournalStorage:
  """Reads a journal."""
  try:
    return JournalStorage(JournalFileBackend(str(path), _Lock(path)))
  except (ValueError, KeyError, TypeError, AssertionError) as error:
    raise UserError(f'{path} should hold the sweep\'s trials, and is damaged: {error}; restore it '
                    f'from a copy, or choose another --workdir') from error


def _check_same_sweep(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any]):
  """Refuses to go on with a sweep whose trials could not be compared with those before."""
  # How long a trial may take to stop is one thing for a job, and another for this machine.
  before, after = ({name: value for name, value in about['settings'].items()
                    if name != 'train.grace_seconds'} for about in (old, new))
  differences = [f'{name} was {before.get(name)!r}, is {after.get(name)!r}'
                 for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
  if old['space'] != new['space']:
    differences.append('the search space was another')
  if differences:
    raise UserError(f'{folder} belongs to another sweep: {"; ".join(differences)}; choose another '
                    f'--workdir, or the same settings')
