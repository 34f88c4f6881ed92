"""Shows a sweep as one HTML page that needs no other file and no network."""

import html
from collections.abc import Callable, Mapping, Sequence

import optuna
import plotly.graph_objects
import plotly.offline
from optuna import visualization
from optuna.trial import TrialState

_STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 1200px; padding: 0 1em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25em .7em; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #888; position: sticky; top: 0; }
td { border-bottom: 1px solid #ddd; }
td:last-child, th:last-child { text-align: left; white-space: normal; min-width: 12em; }
tr.best { background: #e3f4e3; font-weight: 600; }
tr.failed { color: #b00020; }
tr.pruned, tr.waiting { color: #666; }
pre { background: #f5f5f5; overflow-x: auto; padding: 1em; }
"""
# No link to plotly's site, and no button that sends the data there.
_CONFIG = {'displaylogo': False, 'showSendToCloud': False, 'plotlyServerURL': '',
           'responsive': True}


def page(study: optuna.Study, objective: str, header: Sequence[str],
         rows: Sequence[Sequence[str]], summary: str, texts: Mapping[str, str]) -> bytes:
  """Returns a page with the table, Optuna's plots and plotly's JavaScript.

  Args:
    study: an open study.
    objective: the name of the trials' values.
    header: the titles of the table.
    rows: the table's rows. The second cell is the trial's state. The first cell of the best trial
      ends in a star.
    summary: the text above the table.
    texts: the texts below the plots, by title.
  """
  parts = [f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
           f'<title>Sweep</title>\n<style>{_STYLE}</style>\n'
           f'<script>{plotly.offline.get_plotlyjs()}</script>\n</head>\n<body>\n<h1>Sweep</h1>\n'
           f'<p>{html.escape(summary)}.</p>', _table(header, rows)]
  for title, figure in _figures(study, objective).items():
    parts.append(f'<h2>{title}</h2>')
    parts.append(figure if isinstance(figure, str) else figure.to_html(
        config=_CONFIG, include_plotlyjs=False, full_html=False, default_height='480px',
        div_id=title.lower().replace(' ', '-')))
  for title, text in texts.items():
    parts.append(f'<h2>{html.escape(title)}</h2>\n<pre>{html.escape(text)}</pre>')
  return '\n'.join([*parts, '</body>\n</html>\n']).encode('utf-8', 'backslashreplace')


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  def line(tag, cells):
    return ''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)

  body = ''.join(f'<tr class="{row[1]}{" best" * row[0].endswith("*")}">{line("td", row)}</tr>\n'
                 for row in rows)
  return (f'<div class="wide"><table>\n<thead><tr>{line("th", header)}</tr></thead>\n'
          f'<tbody>\n{body}</tbody>\n</table></div>')


def _figures(study: optuna.Study,
             objective: str) -> dict[str, plotly.graph_objects.Figure | str]:
  """Returns Optuna's plots by title, or a paragraph that says why there is none."""
  trials = study.get_trials(deepcopy=False)
  complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
  searched = any(trial.params for trial in complete)

  def figure(plot: Callable, wanted: str, there: bool, **arguments):
    if not there:
      return f'<p>{wanted}</p>'
    return plot(study, **arguments).update_layout(title=None, margin_t=30)

  return {
      'Optimisation history': figure(
          visualization.plot_optimization_history, 'No trial is complete.', bool(complete),
          target_name=objective),
      'Parameter importances': figure(
          visualization.plot_param_importances,
          'This plot needs two complete trials with parameters.', searched and len(complete) > 1,
          target_name=objective),
      'Intermediate values': figure(
          visualization.plot_intermediate_values, 'No trial has an intermediate value yet.',
          any(trial.intermediate_values for trial in trials)),
      'Parallel coordinates': figure(
          visualization.plot_parallel_coordinate,
          'This plot needs a complete trial with parameters.', searched, target_name=objective)}
