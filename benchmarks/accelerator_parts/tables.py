"""Tables of benchmarks/README.md from the JSON file of measurements."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

_NONE = '–'


def tables(measured: dict[str, Any]) -> str:
  """Returns all tables as Markdown, from the content of a file of measurements."""
  found = measured['sections']
  parts = [_machines(found.values())]
  if measured['size'] == 'toy':
    parts.append('The sizes are tiny, which only shows that every benchmark runs.')
  for title, write in _TABLES:
    if text := write(found):
      parts += [f'#### {title}', text]
  failed = [
    [name, section['error']] for name, section in found.items() if section['error']
  ]
  failed += [
    [f'{name}: {_label(row)}', row['error']]
    for name, section in found.items()
    for row in section['rows']
    if 'error' in row
  ]
  if failed:
    parts += ['#### Failures', _table(['measurement', 'error'], failed)]
  return '\n\n'.join(parts) + '\n'


def _machines(sections: Iterable[dict[str, Any]]) -> str:
  """Returns a table of the machines and versions; several calls may have different ones."""
  rows = {
    tuple(section[key] for key in ('machine', 'versions', 'commit')): section['time']
    for section in reversed(list(sections))
  }
  return _table(
    ['machine', 'versions', 'commit', 'from'],
    [[*row, first] for row, first in reversed(rows.items())],
  )


def _attention(found) -> str:
  rows = _rows(found, 'attention')
  return _table(
    [
      'case',
      'error of values: cuDNN',
      'bfloat16 reference',
      'of gradients: cuDNN',
      'bfloat16 reference',
      'agrees',
      'empty queries are zero',
      'same bits twice',
      'forward and backward: cuDNN',
      'reference',
      'speedup (reference / cuDNN)',
    ],
    [
      [
        row['case'],
        *(
          _error(row[name])
          for name in (
            'value_error',
            'reference_value_error',
            'gradient_error',
            'reference_gradient_error',
          )
        ),
        _yes(row['agrees']),
        _yes(row.get('empty_are_zero')),
        _yes(row.get('same_bits')),
        _milliseconds(row.get('kernel_seconds')),
        _milliseconds(row.get('reference_seconds')),
        _times(row.get('reference_seconds'), row.get('kernel_seconds')),
      ]
      for row in rows
    ],
  )


def _kernels(found) -> str:
  rows = _rows(found, 'kernels')
  usual = {
    (row['case'], row['heads']): row['seconds']
    for row in rows
    if row['kernel'] == 'cuDNN'
  }
  return _table(
    [
      'attention',
      'rows × length × heads',
      'kernel',
      'error of values',
      'of gradients',
      'forward and backward',
      'fastest … slowest',
      'against cuDNN',
    ],
    [
      [
        row['case'],
        f'{row["rows"]:,} × {row["length"]} × {row["heads"]}',
        row['kernel'],
        _error(row['value_error']),
        _error(row['gradient_error']),
        _milliseconds(row['seconds']),
        _spread(row),
        _times(row['seconds'], usual.get((row['case'], row['heads']))),
      ]
      for row in rows
    ],
  )


def _training_steps_by_kernel(found) -> str:
  lines = []
  for name in found:
    _, _, rest = name.partition(', ')
    model, _, kernel = rest.partition(', ')
    if kernel in ('', 'PyTorch', 'reproducible'):
      continue
    usual = {
      _shape(row): row['seconds'] for row in _rows(found, f'training steps, {model}')
    }
    lines += [
      [
        model,
        f'{row["rows"]:,} × {row["length"]}',
        kernel,
        _milliseconds(row['seconds']),
        _share(row['utilization']),
        _gigabytes(row['device_bytes']),
        _times(row['seconds'], usual.get(_shape(row))),
      ]
      for row in _rows(found, name)
    ]
  return _table(
    [
      'model',
      'rows × length',
      'kernel of attention',
      'training step',
      'utilization',
      'memory',
      'against cuDNN with the mask',
    ],
    lines,
  )


def _training_steps(found) -> str:
  lines = []
  for name in found:
    kind, _, model = name.partition(', ')
    if kind != 'training steps' or ',' in model:
      continue
    theirs = {_shape(row): row for row in _rows(found, f'{name}, PyTorch')}
    for row in _rows(found, name):
      baseline = theirs.get(_shape(row), {})
      lines.append(
        [
          model,
          f'{row["rows"]:,} × {row["length"]}',
          _milliseconds(row['seconds']),
          _spread(row),
          _count(row['tokens_per_second']),
          _share(row['utilization']),
          _gigabytes(row['device_bytes']),
          _milliseconds(baseline.get('seconds')),
          _share(baseline.get('utilization')),
          _times(baseline.get('seconds'), row['seconds']),
        ]
      )
  return _table(
    [
      'model',
      'rows × length',
      'training step',
      'fastest … slowest',
      'target tokens a second',
      'utilization',
      'memory',
      'compiled PyTorch: training step',
      'utilization',
      'speedup (baseline / ours)',
    ],
    lines,
  )


def _reproducible(found) -> str:
  lines = []
  for name in found:
    plain = name.removesuffix(', reproducible')
    if plain == name:
      continue
    usual = {_shape(row): row for row in _rows(found, plain)}
    for row in _rows(found, name):
      seconds = usual.get(_shape(row), {}).get('seconds')
      lines.append(
        [
          plain.partition(', ')[2],
          f'{row["rows"]:,} × {row["length"]}',
          _milliseconds(seconds),
          _milliseconds(row['seconds']),
          _times(row['seconds'], seconds),
        ]
      )
  return _table(
    [
      'model',
      'rows × length',
      'training step',
      'with `train.reproducible`',
      'time grows by',
    ],
    lines,
  )


def _searches(found) -> str:
  theirs = {
    (row['beams'], row['sentences']): row for row in _rows(found, 'searches, PyTorch')
  }
  rows = []
  for row in _rows(found, 'searches'):
    other = theirs.get((row['beams'], row['sentences']))
    rows.append(
      [
        'greedy' if row['beams'] == 1 else f'beam {row["beams"]}',
        f'{row["sentences"]:,}',
        _milliseconds(row['seconds']),
        _spread(row),
        _count(row['tokens_per_second']),
        _count(row['sentences_per_second']),
        _milliseconds(other['seconds']) if other else '–',
        f'{other["seconds"] / row["seconds"]:.1f} ×' if other else '–',
      ]
    )
  return _table(
    [
      'search',
      'sentences in a batch',
      'a batch',
      'fastest … slowest',
      'tokens a second',
      'sentences a second',
      'Hugging Face: a batch',
      'speedup (baseline / ours)',
    ],
    rows,
  )


def _data(found) -> str:
  return _table(
    [
      'batches',
      'rows × length',
      'seconds',
      'training steps',
      'target tokens a second',
      'waiting for data',
      'utilization',
      'rows are full',
    ],
    [
      [
        row['batches'],
        f'{row["rows"]:,} × {row["length"]}',
        f'{row["seconds"]:.0f}',
        _count(row['steps']),
        _count(row['tokens_per_second']),
        _share(row['data_wait']),
        _share(row['utilization']),
        _share(row['fill']),
      ]
      for row in _rows(found, 'data')
    ],
  )


_TABLES: Sequence[tuple[str, Callable[[dict[str, Any]], str]]] = (
  ('cuDNN against the reference', _attention),
  ('Training steps', _training_steps),
  ('Other kernels of attention', _kernels),
  ('Training steps with them', _training_steps_by_kernel),
  ('The cost of `train.reproducible`', _reproducible),
  ('Decoding on the accelerator', _searches),
  ('Waiting for data', _data),
)


def _rows(found, name: str) -> list[dict[str, Any]]:
  """Returns the measured rows of a section."""
  return [row for row in found.get(name, {'rows': []})['rows'] if 'error' not in row]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """Returns a table; an empty one if there are no rows."""
  if not rows:
    return ''
  return '\n'.join(
    '| ' + ' | '.join(cell.replace('|', r'\|') for cell in row) + ' |'
    for row in (heads, ['---'] * len(heads), *rows)
  )


def _shape(row) -> tuple[int, int]:
  return row['rows'], row['length']


def _label(row) -> str:
  """Returns the text that identifies a row."""
  return ', '.join(f'{name} {value}' for name, value in row.items() if name != 'error')


def _error(value: float) -> str:
  return f'{value:.1e}'


def _yes(value: bool | None) -> str:
  return _NONE if value is None else 'yes' if value else '**no**'


def _milliseconds(seconds: float | None) -> str:
  return _NONE if seconds is None else f'{1000 * seconds:.3g} ms'


def _spread(row) -> str:
  return f'{1000 * row["least"]:.3g} … {1000 * row["most"]:.3g} ms'


def _times(slow: float | None, fast: float | None) -> str:
  return _NONE if slow is None or fast is None else f'{slow / fast:.2f} ×'


def _count(value: float) -> str:
  return f'{value:,.0f}'


def _share(value: float | None) -> str:
  return _NONE if value is None else f'{100 * value:.1f}%'


def _gigabytes(value: float) -> str:
  return f'{value / 1e9:.1f} GB'
