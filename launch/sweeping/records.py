"""Optuna's study, extended: an abandoned trial is stored again as a new record."""

from typing import Any

import optuna
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState


class Study(optuna.Study):
  """Optuna's study, which counts all records of a trial as one trial."""

  def stop(self):
    """Records that the sampler has tried everything, so that no worker adds a trial."""
    self.set_user_attr('exhausted', True)

  def records(self) -> list[FrozenTrial]:
    """Returns the last record of each trial, in the order of the trials."""
    last = {}
    for record in self.get_trials(deepcopy=False):
      last[record.system_attrs.get('failed_trial', record.number)] = record
    return list(last.values())

  def number(self, record: int) -> int:
    """Returns the number of the trial that `record` belongs to."""
    return [last.number for last in self.records()].index(record)

  def requeue_abandoned(self):
    """Re-enqueues every trial that its worker has abandoned."""
    for record in filter(is_abandoned, self.records()):
      requeue(self, record)


class Trial:
  """Optuna's trial, with a number that is the same in all its records."""

  def __init__(self, trial: optuna.Trial, number: int):
    self._trial, self.number = trial, number

  def __getattr__(self, name: str) -> Any:
    return getattr(self._trial, name)


def is_abandoned(record: FrozenTrial) -> bool:
  """Returns whether a trial was abandoned: its record failed without a reason."""
  return record.state == TrialState.FAIL and 'reason' not in record.user_attrs


def requeue(study: optuna.Study, record: FrozenTrial):
  """Stores a trial again, with parameters, attributes and evaluations, for the next worker."""
  RetryHeartbeatStaleTrialCallback(inherit_intermediate_values=True)(study, record)
