"""The results of a sweep: a table, the best config as a file, and an offline HTML page."""

import datetime
import html
import shlex
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
import plotly.offline
from optuna import visualization
from optuna.trial import FrozenTrial, TrialState
from tabulate import tabulate  # A requirement of sacreBLEU.

from launch.config_file import config_file, with_settings
from launch.sweeping import checkpoints
from launch.sweeping.saved import SavedSweep
from launch.sweeping.study import TRIALS, Sweep
from transformer import files

BEST = 'best.py'
PAGE = 'sweep.html'
_STATES = {
  TrialState.WAITING: 'waiting',
  TrialState.RUNNING: 'running',
  TrialState.COMPLETE: 'complete',
  TrialState.PRUNED: 'pruned',
  TrialState.FAIL: 'failed',
}
_STYLE = 'body { font: 15px/1.4 sans-serif; margin: 2em } pre { overflow-x: auto }'
# No link to plotly's site, and no button that uploads the data.
_PLOTS = {
  'displaylogo': False,
  'showSendToCloud': False,
  'plotlyServerURL': '',
  'responsive': True,
}


def write(sweep: Sweep, command: str):
  """Writes `best.py`, if a trial is complete, and `sweep.html`.

  If several jobs write at the same time, the last files include all finished trials. `command` is
  the command that started the sweep, as a user types it.
  """
  ended = None
  while ended != (
    ended := sum(trial.state.is_finished() for trial in sweep.started_trials())
  ):
    best = sweep.best()
    if best is not None:
      files.write(sweep.folder / BEST, _best_config(sweep, best))
    files.write(
      sweep.folder / PAGE,
      page(
        sweep.study,
        sweep.objective,
        summary(sweep),
        {
          'Trials': align_columns(table(sweep)),
          'Started by': command,
          f'The search space, {sweep.space.filename}': sweep.space.text,
        },
      ),
    )


def page(
  study: optuna.Study, objective: str, headline: str, texts: Mapping[str, str]
) -> bytes:
  """Returns an HTML page with texts by title, Optuna's plots and plotly's JavaScript."""
  parts = [
    f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    f'<title>Sweep</title>\n<style>{_STYLE}</style>\n'
    f'<script>{plotly.offline.get_plotlyjs()}</script>\n</head>\n<body>\n<h1>Sweep</h1>\n'
    f'<p>{html.escape(headline)}.</p>'
  ]
  parts += [
    f'<h2>{html.escape(title)}</h2>\n<pre>{html.escape(text)}</pre>'
    for title, text in texts.items()
  ]
  named = {'target_name': objective}
  for title, plot, arguments in (
    ('Optimization history', visualization.plot_optimization_history, named),
    ('Parameter importances', visualization.plot_param_importances, named),
    ('Intermediate values', visualization.plot_intermediate_values, {}),
    ('Parallel coordinates', visualization.plot_parallel_coordinate, named),
  ):
    try:
      with warnings.catch_warnings():
        warnings.simplefilter('error', UserWarning)
        figure = plot(study, **arguments).update_layout(title=None, margin_t=30)
      content = figure.to_html(
        config=_PLOTS,
        include_plotlyjs=False,
        full_html=False,
        default_height='480px',
        div_id=title.lower().replace(' ', '-'),
      )
    except (
      ValueError,
      RuntimeError,
      UserWarning,
    ) as error:  # There are too few trials.
      content = f'<p>{html.escape(str(error))}</p>'
    parts.append(f'<h2>{title}</h2>\n{content}')
  return '\n'.join([*parts, '</body>\n</html>\n']).encode('utf-8', 'backslashreplace')


def table(sweep: SavedSweep, exact: bool = False) -> list[list[Any]]:
  """Returns a header, and one row per trial in order; the best trial has a star.

  Cells are text; if `exact`, numbers with all digits and no star. The column `checkpoints` is
  present only if some were deleted.
  """
  trials = sweep.started_trials()
  best = sweep.best()
  states = {}
  names = {}
  for trial in trials:
    states[trial.number] = checkpoints.state(sweep.folder / TRIALS / str(trial.number))
    names |= dict.fromkeys(trial.user_attrs.get('settings', {}))
  if 'deleted' not in states.values():
    states = {}
  rows = [
    [
      'trial',
      'state',
      sweep.objective,
      'step',
      'time',
      *(name.rpartition('.')[2] for name in names),
      *(['checkpoints'] if states else []),
      'reason',
    ]
  ]
  for trial in trials:
    attributes = trial.user_attrs
    step = attributes.get('step', trial.last_step)
    value = (
      trial.value if trial.value is not None else trial.intermediate_values.get(step)
    )
    seconds = attributes.get('seconds')
    settings = attributes.get('settings', {})
    is_best = best is not None and trial.number == best.number
    star = ' *' if is_best and not exact else ''
    rows.append(
      [
        f'{trial.number}{star}',
        _STATES[trial.state],
        cell(value, exact),
        cell(step, exact),
        '' if seconds is None else str(datetime.timedelta(seconds=round(seconds))),
        *(cell(settings.get(name), exact) for name in names),
        *([states[trial.number]] if states else []),
        attributes.get('reason', ''),
      ]
    )
  return rows


def align_columns(rows: Sequence[Sequence[str]]) -> str:
  """Returns a table as text; all columns except the last are right-aligned."""
  alignments = ['right'] * (len(rows[0]) - 1) + ['left']
  return tabulate(rows, tablefmt='plain', colalign=alignments, disable_numparse=True)


def summary(sweep: Sweep) -> str:
  """Returns one line: trial counts by state, the best trial, and whose checkpoints exist."""
  states = [trial.state for trial in sweep.started_trials()]
  states += [TrialState.WAITING] * sweep.num_unstarted()
  counts = ', '.join(
    f'{states.count(state)} {name}'
    for state, name in _STATES.items()
    if state in states
  )
  best = sweep.best()
  outcome = 'none is complete'
  if best is not None:
    outcome = (
      f'the best is trial {best.number}, with {sweep.objective} '
      f'{cell(best.value)} at step '
      f'{best.user_attrs["step"]}'
    )
  parts = [f'{len(states)} trials: {counts}', outcome, checkpoints.summary(sweep)]
  return '; '.join(filter(None, parts))


def _best_config(sweep: Sweep, best: FrozenTrial) -> bytes:
  """Returns the config of the best trial, with a docstring that describes its origin."""
  run = sweep.folder / TRIALS / str(best.number)
  completed = sum(
    trial.state == TrialState.COMPLETE for trial in sweep.started_trials()
  )
  path = shlex.quote(str(sweep.folder / BEST))
  objective = sweep.objective
  docstring = f"""Trial {best.number} of a sweep, the best of {completed} that are complete.

  python train.py --config={path} --workdir=runs/best

{objective} {best.value:.6g} at step {best.user_attrs['step']}, on the validation split. The search
space was {sweep.space.filename}; the trial's run is {run} on host
{best.user_attrs['host']}, trained at commit {best.user_attrs.get('commit', 'unknown')}.
"""
  settings = best.user_attrs['settings']
  return config_file(docstring, with_settings(sweep.config, settings), settings)


def cell(value: Any, exact: bool = False) -> Any:
  """Returns `value` as the text of a cell; if `exact`, unchanged."""
  if exact:
    return value
  if value is None:
    return ''
  return f'{value:.4g}' if isinstance(value, float) else str(value)
