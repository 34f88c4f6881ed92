"""The report of a run: one HTML page without scripts, self-contained and offline."""

import base64
import contextlib
import html
import string
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import logging

from transformer.errors import UserError, warn_on_error
from transformer.evaluation.results import Result
from transformer.tools.card.attention_table import attention_table
from transformer.tools.card.fact_tables import (
  Code,
  Table,
  data_table,
  evaluation_table,
  provenance_table,
  score_table,
  settings_table,
  training_table,
)
from transformer.tools.card.run_facts import RunFacts

_FOLDER = Path(__file__).parent
_MAX_PIECES = 60  # Browsers are slow with larger tables.
_MAPS = (
  'The maps show the cross-attention of the last layer: a row for each token of the '
  'translation, a column for each token of the source. The shade is the square root of the '
  'weight; point at a cell for its weight.'
)
_NOT_SCORED = (
  '<p>Not scored yet. Score the run: <code>python eval.py --workdir=RUN</code></p>'
)


def report_text(facts: RunFacts, run: Any, count: int) -> str:
  """Returns the HTML page.

  Args:
    run: the loaded run, for attention; None if it has no checkpoint.
    count: the number of examples.
  """
  data = facts.config.data
  steps = ', '.join(map(str, facts.steps)) or 'no checkpoint'
  subtitle = f'{data.source_language} → {data.target_language}, step {steps}'
  scores = _NOT_SCORED
  provenance = _as_html(provenance_table(facts))
  if facts.scores:
    scores = _as_html(score_table(facts.scores))
    provenance += _as_html(evaluation_table(facts.scores))
  parts = {
    'name': html.escape(facts.name),
    'style': (_FOLDER / 'report.css').read_text('utf-8'),
    'about': html.escape(subtitle),
    'scores': scores,
    'curves': _curves(facts.workdir),
    'examples': ''.join(_examples(facts, run, count)),
    'settings': _as_html(settings_table(facts.config)),
    'training': _as_html(training_table(facts)),
    'data': _as_html(data_table(facts)),
    'provenance': provenance,
  }
  template = (_FOLDER / 'report.html').read_text('utf-8')
  return string.Template(template).substitute(parts)


def _curves(workdir: Path) -> str:
  """Returns the curves as an image, or a line with the reason if there are none."""
  try:
    from transformer.tools.plot.curves import plot_runs  # A tool that may be missing.

    with tempfile.TemporaryDirectory() as folder:
      picture = Path(folder, 'curves.svg')
      place = workdir.resolve()
      with contextlib.chdir(place.parent):  # The legend shows the given path.
        plot_runs([Path(place.name)], picture)
      content = base64.b64encode(picture.read_bytes()).decode('ascii')
  except ModuleNotFoundError as error:
    return _missing(f'no curves: there is no {error.name} here')
  except UserError as error:
    return _missing(f'no curves: {error}')
  alt = 'Losses, scores, learning rate and speed'
  return f'<img alt="{alt}" src="data:image/svg+xml;base64,{content}">'


def _examples(facts: RunFacts, run: Any, count: int) -> Iterator[str]:
  """Yields evenly spaced sentences of a scored text, with translations and attention."""
  results = [
    result for result in facts.scores_of_steps if result.sentences_path.exists()
  ]
  if not results:
    yield '<p>There are no examples before the run is scored.</p>'
    return
  result = results[0]
  sentences = result.read_sentences()
  count = min(count, len(sentences))
  text = f'{result.content["text"]}.{result.name}'
  yield _note(f'{count} of {len(sentences):,} sentences of {text}, evenly spaced.')
  yield _note(_MAPS)
  for example in range(count):
    index = example * len(sentences) // count
    sentence = sentences[index]
    yield f'<h3>Sentence {index + 1}</h3><dl>'
    yield _term('source', sentence['source'])
    for reference in sentence['references']:
      yield _term('reference', reference)
    yield _term('translation', sentence['translation'])
    yield _term('scores', _scores_of(sentence, result))
    yield '</dl>'
    yield _attention(run, sentence)


def _scores_of(sentence: dict[str, Any], result: Result) -> str:
  """Returns the scores of a sentence by each metric of its result."""
  scores = []
  for metric in result.content['metrics']:
    name = metric['name']
    if name in sentence:
      scores.append(f'{name} {sentence[name]:.2f}')
  return ', '.join(scores)


def _attention(run: Any, sentence: dict[str, Any]) -> str:
  """Returns the last layer's cross-attention, or a line with the reason if there is none."""
  if run is None:
    return _missing('no attention: there is no checkpoint to load')
  reasons = []
  with warn_on_error('no attention', reasons.append):  # Some models store no weights.
    attention = run.attention(sentence['source'], sentence['translation'])
  if reasons:
    return _missing(reasons[0])
  pieces = attention.source, attention.target
  if max(map(len, pieces)) > _MAX_PIECES:
    return _missing(f'no attention: a side has more than {_MAX_PIECES} tokens')
  weights_HTS = attention.cross[-1]
  mean = attention_table(*pieces, weights_HTS.mean(0), 'map')
  figures = [_figure(mean, 'mean of all heads')]
  for head, weights_TS in enumerate(weights_HTS):
    table = attention_table(*pieces, weights_TS, 'small')
    figures.append(_figure(table, f'head {head}'))
  content = ''.join(figures)
  return f'<div class="scroll">{content}</div>'


def _figure(content: str, caption: str) -> str:
  return f'<figure>{content}<figcaption>{caption}</figcaption></figure>'


def _as_html(table: Table) -> str:
  """Returns a table in HTML, in a box that scrolls sideways in a narrow window."""
  head = ''.join(f'<th>{html.escape(name)}</th>' for name in table.head)
  lines = [f'<tr>{head}</tr>']
  for row in table.rows:
    cells = ''.join(map(_cell, row))
    lines.append(f'<tr>{cells}</tr>')
  content = ''.join(lines)
  return f'<div class="scroll"><table>{content}</table></div>'


def _cell(cell: str) -> str:
  text = html.escape(cell)
  if isinstance(cell, Code):
    return f'<td><code>{text}</code></td>'
  return f'<td>{text}</td>'


def _term(name: str, text: str) -> str:
  return f'<dt>{html.escape(name)}</dt><dd dir="auto">{html.escape(text)}</dd>'


def _note(line: str) -> str:
  return f'<p class="note">{html.escape(line)}</p>'


def _missing(line: str) -> str:
  """Logs a warning, and returns the line for the page."""
  logging.warning('the report has %s', line)
  return _note(line)
