"""A sweep as its storage has it: its trials, in order and ranked."""

import copy
from dataclasses import dataclass
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState

from launch.sweeping import storage
from launch.sweeping.records import Study
from launch.sweeping.space import OBJECTIVES
from transformer.errors import UserError


@dataclass(eq=False)
class SavedSweep:
  """The started trials of a sweep.

  `folder` is the directory of the runs, and `objective` is one of `OBJECTIVES`. `study` has the
  trials; it is None until a subclass opens it.
  """

  folder: Path
  objective: str
  num_trials: int
  study: Study | None = None

  @property
  def direction(self) -> str:
    """`maximize` or `minimize`."""
    return OBJECTIVES[self.objective]

  def started_trials(self) -> list[FrozenTrial]:
    """Returns the started trials in order, each as its last record.

    Records beyond the last trial are omitted: two machines may add the last one at the same time.
    """
    trials = [copy.copy(record) for record in self.study.records()[: self.num_trials]]
    for number, trial in enumerate(trials):
      trial.number = number
    return trials

  def ranked(self) -> list[FrozenTrial]:
    """Returns the complete trials, best first; ties are broken by the lower number."""
    complete = [
      trial for trial in self.started_trials() if trial.state == TrialState.COMPLETE
    ]
    return sorted(
      complete,
      key=lambda trial: trial.value,
      reverse=self.direction == 'maximize',
    )

  def best(self) -> FrozenTrial | None:
    """Returns the complete trial with the best value; None if no trial is complete."""
    return next(iter(self.ranked()), None)


def open_saved(folder: Path, url: str | None) -> SavedSweep:
  """Opens a sweep to read its trials, even while it is running.

  `url` is the database of a sweep with `--storage`. Raises `UserError` if there is no sweep, or it
  was started by an earlier version of this code, which recorded less.
  """
  try:
    study = Study(storage.study_name(folder, url), storage.open_trials(folder, url))
    known = study.user_attrs
    return SavedSweep(folder, known['about']['objective'], known['num_trials'], study)
  except KeyError as error:
    raise UserError(
      f'{folder} is not the directory of a sweep that this version has started; pass the --workdir '
      '(and --storage) of one or, for a sweep of an earlier version, all its flags'
    ) from error
