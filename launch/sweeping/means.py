"""The printed table of a sweep: its trials, or means over trials that differ only in the seed."""

import json
from typing import Any

from optuna.trial import TrialState

from launch import tables
from launch.sweeping import results
from launch.sweeping.saved import SavedSweep


def formatted(sweep: SavedSweep, style: str, over_seeds: bool) -> str:
  """Returns the table of trials, or of means over seeds.

  `style` is `text` or one of `tables.FORMATS`.
  """
  rows = means(sweep, style) if over_seeds else results.table(sweep, style == 'csv')
  if style == 'text':
    return results.align_columns(rows)
  return tables.format_table(rows, style)


def means(sweep: SavedSweep, style: str) -> list[list[Any]]:
  """Returns a header, and one row for each combination of settings other than `seed`.

  A row has the settings, the number of complete trials with them, and the mean and standard
  deviation of their values, as cells for a table of this style (`tables.over_seeds`).
  """
  values: dict[str, list[float]] = {}
  names = {}
  for trial in sweep.started_trials():
    if trial.state == TrialState.COMPLETE:
      settings = dict(trial.user_attrs.get('settings', {}))
      settings.pop('seed', None)
      names |= dict.fromkeys(settings)
      choice = json.dumps(settings, sort_keys=True)
      values.setdefault(choice, []).append(trial.value)
  last_names = [name.rpartition('.')[2] for name in names]
  rows = [[*last_names, 'seeds', *tables.column_titles(sweep.objective, style)]]
  for choice, of_seeds in values.items():
    settings = json.loads(choice)
    cells = [results.cell(settings.get(name), style == 'csv') for name in names]
    spread = tables.over_seeds(of_seeds, style, '.4g')
    rows.append([*cells, str(len(of_seeds)), *spread])
  return rows
