r"""Measures table 1 of the paper: the cost of each type of layer, and its path lengths.

  python benchmarks/layer_complexity.py
  python benchmarks/layer_complexity.py --turns=0 --lengths=64,128,256 --widths=64,128

The work is a forward pass on one sequence of n vectors of width d in float32. FLOPs are XLA's count
for the compiled layer; times are measured on this machine. In each turn all layers and sizes run
one after another. Growth is the slope of a least-squares line through the logarithms:

- of FLOPs, with the smallest and the largest slope between adjacent sizes,
- of median times, with the interval that contains 95% of bootstrap samples of turns,
- of the fastest times, which depend least on other load of the machine.

The line uses sizes from --fit_from_length and --fit_from_width on, where the term of the layer's
formula is the largest. --turns=0 skips the times. --output is the plot.
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from absl import flags

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from side_by_side import machine

from transformer.cli import shared_flags
from transformer.errors import UserError
from transformer.system import command_line, outputs

_TURNS = flags.DEFINE_integer('turns', 15, 'Number of turns of each layer and size.')
_LENGTHS = flags.DEFINE_list(
  'lengths', ['256', '512', '1024', '2048', '4096'], 'Values of n.'
)
_WIDTHS = flags.DEFINE_list(
  'widths', ['128', '256', '512', '1024', '2048'], 'Values of d.'
)
_LENGTH = flags.DEFINE_integer('length', 256, 'n for all widths.')
_WIDTH = flags.DEFINE_integer('width', 64, 'd for all lengths.')
_FIT_LENGTH = flags.DEFINE_integer(
  'fit_from_length', 1024, 'The smallest n of the fit.'
)
_FIT_WIDTH = flags.DEFINE_integer('fit_from_width', 512, 'The smallest d of the fit.')
_PATH_LENGTHS = flags.DEFINE_list(
  'path_lengths',
  ['16', '32', '64', '128', '256'],
  'Sequence lengths n at which to count sequential matrix products and path lengths.',
)
_OUTPUT = flags.DEFINE_string(
  'output', 'runs/layer_complexity.svg', 'File of the plot.'
)

_FORMATS = ('.svg', '.png', '.pdf')
_DRAWS = 1000
_COLORS = ('#d62728', '#ff9896', '#1f77b4', '#2ca02c', '#ff7f0e', '#98df8a', '#9467bd')


def main(_):
  """Measures, prints the tables and writes the plot."""
  lengths, widths = _sizes('lengths', _LENGTHS.value), _sizes('widths', _WIDTHS.value)
  path_lengths = _sizes('path_lengths', _PATH_LENGTHS.value, 2, 1)
  output = Path(_OUTPUT.value)
  for flag, value in (('length', _LENGTH.value), ('width', _WIDTH.value)):
    _sizes(flag, [str(value)])
  shared_flags.check_at_least(0, _TURNS)
  if output.suffix not in _FORMATS or output.is_dir():
    raise UserError(
      f'--output must end in one of {", ".join(_FORMATS)} and be a file; got {_OUTPUT.value!r}'
    )
  outputs.check_folder('output', output.parent)
  from table1_layers import DILATED, LAYERS, flops, path_length, sequential_operations

  cells = {
    'n': [(n, _WIDTH.value) for n in lengths],
    'd': [(_LENGTH.value, d) for d in widths],
  }
  every = sorted({size for sizes in cells.values() for size in sizes})
  counted = {
    layer.name: {cell: flops(layer, *cell) for cell in every} for layer in LAYERS
  }
  timed = _take_turns(LAYERS, every, _TURNS.value)
  print(f'{machine("jax")}; n with d = {_WIDTH.value}, d with n = {_LENGTH.value}\n')
  for line in _growth(LAYERS, cells, counted, timed):
    print(line)
  rows = [*LAYERS, DILATED]
  operations = {
    layer.name: [sequential_operations(layer, n, 16) for n in path_lengths]
    for layer in rows
  }
  paths = {layer.name: [path_length(layer, n) for n in path_lengths] for layer in rows}
  print(
    f'\nSequential matrix products and path lengths at n = {_lists(path_lengths)}:\n'
  )
  for line in _table(
    ('layer', 'sequential, paper', 'products in a row', 'path, paper', 'longest path'),
    [
      (
        layer.name,
        f'O({layer.sequential})',
        _lists(operations[layer.name]),
        f'O({layer.path})',
        _lists(paths[layer.name]),
      )
      for layer in rows
    ],
  ):
    print(line)
  for axis, sizes in cells.items() if _TURNS.value else ():
    print(f'\nMilliseconds, medians of {_TURNS.value}, and the fastest:\n')
    names = [f'{axis} = {n if axis == "n" else d:,}' for n, d in sizes]
    for line in _table(
      ('layer', *names),
      [
        (
          layer.name,
          *(
            f'{1e3 * statistics.median(timed[layer.name][cell]):.3g} '
            f'({1e3 * min(timed[layer.name][cell]):.3g})'
            for cell in sizes
          ),
        )
        for layer in LAYERS
      ],
    ):
      print(line)
  _draw(
    cells,
    counted,
    timed,
    {'matrix products in a row': operations, 'longest path, in operations': paths},
    path_lengths,
    output,
  )
  print(f'\n{output} has a plot')


def _sizes(
  flag: str, values: Sequence[str], least: int = 16, factor: int = 8
) -> list[int]:
  """Returns the sorted numbers of a flag, each at least `least` and divisible by `factor`."""
  if not values or not all(
    value.isascii()
    and value.isdecimal()
    and int(value) >= least
    and int(value) % factor == 0
    for value in values
  ):
    kind = f'multiples of {factor}' if factor > 1 else 'numbers'
    raise UserError(
      f'--{flag} must be {kind} from {least} on, such as 64,128,256; got {",".join(values)!r}'
    )
  return sorted({int(value) for value in values})


def _take_turns(layers, cells, turns: int) -> dict[str, dict]:
  """Returns the seconds of every turn, by layer and size."""
  import jax
  from table1_layers import inputs

  timed = {layer.name: {cell: [] for cell in cells} for layer in layers}
  if not turns:
    return timed
  programs = {
    (layer.name, cell): (jax.jit(layer.apply), inputs(layer, *cell))
    for layer in layers
    for cell in cells
  }
  for turn in range(turns + 1):
    for (name, cell), (program, arguments) in programs.items():
      jax.block_until_ready(program(*arguments))  # Fills the caches again.
      started = time.perf_counter()
      jax.block_until_ready(program(*arguments))
      if turn:  # The first compiles.
        timed[name][cell].append(time.perf_counter() - started)
  return timed


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
  """Returns a of the least-squares line log value = a · log size + b."""
  return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def _growth(layers, cells, counted: Mapping, timed: Mapping):
  """Returns the table of exponents and of FLOPs over the paper's formula, as lines."""
  rows = []
  for layer in layers:
    row = [layer.name, f'O({layer.formula})']
    for axis, least, at in (('n', _FIT_LENGTH.value, 0), ('d', _FIT_WIDTH.value, 1)):
      fitted = [cell for cell in cells[axis] if cell[at] >= least]
      if len(fitted) < 2:
        fitted = cells[axis]
      if len(fitted) < 2:
        row += ['', '']
        continue
      sizes = [cell[at] for cell in fitted]
      done = [counted[layer.name][cell] for cell in fitted]
      slopes = [
        exponent(sizes[i : i + 2], done[i : i + 2]) for i in range(len(done) - 1)
      ]
      row.append(f'{exponent(sizes, done):.2f} ({min(slopes):.2f} … {max(slopes):.2f})')
      row.append(_spread(sizes, [timed[layer.name][cell] for cell in fitted]))
    last = max(cells['n'])
    row.append(f'{counted[layer.name][last] / layer.evaluate(*last):.2f}')
    rows.append(row)
  return _table(
    (
      'layer',
      'paper',
      'FLOPs ∝ n^',
      'time ∝ n^',
      'FLOPs ∝ d^',
      'time ∝ d^',
      'FLOPs ÷ formula',
    ),
    rows,
  )


def _spread(sizes, times) -> str:
  """Returns the exponents of the medians, with its 95% interval, and of the fastest times."""
  if not times[0]:
    return ''
  # [size, sample, turn]: a bootstrap sample has the same turns for all sizes.
  drawn = np.random.default_rng(0).choice(times, (_DRAWS, len(times[0])), axis=1)
  draws = [exponent(sizes, medians) for medians in np.median(drawn, axis=2).T]
  low, high = np.percentile(draws, (2.5, 97.5))
  middle, fastest = (
    exponent(sizes, [of(seconds) for seconds in times])
    for of in (statistics.median, min)
  )
  return f'{middle:.2f} ({low:.2f} … {high:.2f}); {fastest:.2f}'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
  return [f'| {" | ".join(line)} |' for line in (heads, ('---',) * len(heads), *rows)]


def _lists(numbers: Sequence[int]) -> str:
  """Returns the numbers separated by commas, or one number if all are equal."""
  return f'{numbers[0]}' if len(set(numbers)) == 1 else ', '.join(map(str, numbers))


def _draw(
  cells,
  counted: Mapping,
  timed: Mapping,
  depths: Mapping,
  path_lengths: Sequence[int],
  output: Path,
):
  """Plots six panels: FLOPs and time over n and over d, operations and paths over n."""
  from matplotlib.figure import Figure

  figure = Figure(figsize=(13, 8), layout='constrained')
  axes = figure.subplots(2, 3)

  def panel(
    place,
    title,
    label,
    lines: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    style: Callable,
    base: int = 10,
  ):
    for number, (name, (sizes, values)) in enumerate(lines.items()):
      place.plot(
        sizes,
        values,
        color=_COLORS[number],
        label=name,
        marker='o',
        markersize=4,
        **style(number),
      )
    place.set_xscale('log', base=2)
    place.set_yscale('log', base=base)
    place.set(
      title=title, xlabel=label, visible=any(values for _, values in lines.values())
    )
    place.grid(alpha=0.3)

  for row, (values, what) in enumerate(
    (
      (counted, 'FLOPs'),
      (
        {
          name: {
            cell: statistics.median(seconds)
            for cell, seconds in by_cell.items()
            if seconds
          }
          for name, by_cell in timed.items()
        },
        'seconds, median',
      ),
    )
  ):
    for column, (axis, sizes) in enumerate(cells.items()):
      fixed = f'd = {_WIDTH.value}' if axis == 'n' else f'n = {_LENGTH.value}'
      panel(
        axes[row][column],
        f'{what}, {fixed}',
        axis,
        {
          name: (
            [cell[column] for cell in sizes if cell in by_cell],
            [by_cell[cell] for cell in sizes if cell in by_cell],
          )
          for name, by_cell in values.items()
        },
        lambda number: {},
      )
  # Lines may coincide, so each line is thinner than the one below it.
  for place, (title, values) in zip(axes[:, 2], depths.items(), strict=True):
    panel(
      place,
      title,
      'n',
      {name: (path_lengths, counts) for name, counts in values.items()},
      lambda number: {'linewidth': 7 - number},
      base=2,
    )
  figure.legend(
    *axes[1][2].get_legend_handles_labels(), loc='outside lower center', ncols=3
  )
  output.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(output, metadata={'Date': None} if output.suffix == '.svg' else None)


if __name__ == '__main__':
  command_line.run(main)
