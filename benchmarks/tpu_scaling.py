"""Compiles the paper's models for 16 to 1,024 TPU chips, and writes tables of their scaling.

  pip install "jax[tpu]"
  python benchmarks/tpu_scaling.py

A compilation takes minutes. Results are cached in runs/tpu_scaling.json, and a later start compiles
only the missing ones, the most important first. --limit=N compiles at most N, --limit=0 none. At
the end, the tables in benchmarks/tpu_scaling.md are rewritten from all results.
"""

import dataclasses
import json
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags, logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from transformer import files
from transformer.config import Config
from transformer.errors import UserError
from transformer.system import command_line
from transformer.training.config import MeshConfig

_LIMIT = flags.DEFINE_integer(
  'limit', None, 'The most compilations (default: all missing).'
)

_ROOT = Path(__file__).resolve().parents[1]
_PAGE, _DATA = Path(__file__).with_suffix('.md'), _ROOT / 'runs' / 'tpu_scaling.json'
_BEGIN, _END = (
  '<!-- tables: python benchmarks/tpu_scaling.py -->',
  '<!-- end of tables -->',
)
_CHIPS = {
  'v5e:4x4': 16,
  'v5e:4x8': 32,
  'v5e:8x8': 64,
  'v5e:8x16': 128,
  'v5e:16x16': 256,
  'v5p:8x8x16': 1024,
}
_TOKENS_A_CHIP = 4096  # In weak scaling: 16 rows of 256.
# In strong scaling: the paper's batch as 256 rows of 100, because powers of two above 4 do not
# divide its 100 rows of 256.
_STRONG_LENGTH = 100
_HEADS = (
  'chips',
  'mesh',
  'tokens a batch',
  'memory a chip',
  'all-reduce',
  'all-gather',
  'other',
  'collectives',
  'TFLOP a chip',
  'compute',
  'communication',
  'utilization',
  'commit',
)


class Cell(NamedTuple):
  """A compilation: base or big, weak or strong scaling, a TPU slice, and a mesh."""

  size: str
  scaling: str
  topology: str
  mesh: MeshConfig

  @property
  def name(self) -> str:
    """The name in the results."""
    mesh = self.mesh
    return f'{self.size} {self.scaling} {self.topology} {mesh.data}x{mesh.fsdp}x{mesh.tensor}'

  @property
  def settings(self) -> Config:
    """The paper's config in bfloat16."""
    config = runpy.run_path(str(_ROOT / 'configs' / 'wmt14.py'))['get_config'](
      self.size
    )
    config.model.dtype = 'bfloat16'
    if self.scaling == 'weak':
      config.train.tokens_per_batch = _TOKENS_A_CHIP * _CHIPS[self.topology]
    else:
      config.data.max_length = _STRONG_LENGTH
    return dataclasses.replace(Config.from_dict(config.to_dict()), mesh=self.mesh)


def cells() -> Iterator[Cell]:
  """Yields all compilations, the most important first."""
  for size, scaling, topologies in (
    ('base', 'strong', ('v5e:16x16', 'v5p:8x8x16')),
    ('base', 'weak', ('v5e:4x4',)),
    ('big', 'weak', ('v5e:16x16',)),
    ('base', 'weak', ('v5p:8x8x16',)),
    ('big', 'strong', ('v5e:16x16', 'v5p:8x8x16')),
  ):
    yield from (
      Cell(size, scaling, chip, _rows_first(scaling, chip)) for chip in topologies
    )
  # Other meshes for the same work.
  heads, some, all_ = (
    MeshConfig(data=64, tensor=4),
    MeshConfig(data=16, fsdp=16),
    MeshConfig(data=1, fsdp=256),
  )
  for size, scaling, meshes in (
    ('base', 'strong', (heads, some)),
    ('big', 'weak', (heads, all_)),
  ):
    yield from (Cell(size, scaling, 'v5e:16x16', mesh) for mesh in meshes)
  for size, scaling, topologies in (
    ('base', 'weak', ('v5e:16x16',)),
    ('base', 'strong', ('v5e:4x4',)),
    ('big', 'weak', ('v5p:8x8x16',)),
    ('big', 'strong', ('v5e:4x4',)),
    ('big', 'weak', ('v5e:4x4',)),
  ):
    yield from (
      Cell(size, scaling, chip, _rows_first(scaling, chip)) for chip in topologies
    )
  for size, scaling, mesh in (('big', 'strong', heads), ('big', 'weak', some)):
    yield Cell(size, scaling, 'v5e:16x16', mesh)
  between = 'v5e:8x8', 'v5e:4x8', 'v5e:8x16'
  for size, scaling in (
    ('base', 'strong'),
    ('base', 'weak'),
    ('big', 'strong'),
    ('big', 'weak'),
  ):
    yield from (
      Cell(size, scaling, chip, _rows_first(scaling, chip)) for chip in between
    )


def _rows_first(scaling: str, topology: str) -> MeshConfig:
  """Splits rows over the chips, and also heads if there are more chips than rows."""
  chips = _CHIPS[topology]
  rows = chips if scaling == 'weak' else min(chips, 25_600 // _STRONG_LENGTH)
  return MeshConfig(data=rows, tensor=chips // rows)


def main(_):
  """Compiles the missing cells, and writes the tables of all results."""
  from benchmarks.tpu_costs import estimate

  os.nice(10)  # It runs for hours, with other work on the machine.
  found = json.loads(_DATA.read_text(encoding='utf-8')) if _DATA.exists() else {}
  _DATA.parent.mkdir(exist_ok=True)
  left = [cell for cell in cells() if cell.name not in found]
  for number, cell in enumerate(left[: _LIMIT.value]):
    logging.info('%d of %d: %s', number + 1, len(left), cell.name)
    found[cell.name] = estimate.training_step_cost(
      cell.settings, estimate.devices_of(cell.topology)
    )
    files.write_json(_DATA, found)
  if found:  # Otherwise the page keeps its tables.
    _write(found)


def _write(found: dict[str, Any]):
  """Replaces the tables of the page."""
  text = _PAGE.read_text(encoding='utf-8')
  if text.count(_BEGIN) != 1 or text.count(_END) != 1:
    raise UserError(
      f'{_PAGE} must have {_BEGIN} and {_END} once each, around its tables'
    )
  before, _, rest = text.partition(_BEGIN)
  old, _, after = rest.partition(_END)
  new = _tables(found)
  if new.count('\n| ') < old.count('\n| '):
    raise UserError(
      f'{_PAGE} has more rows than {_DATA}; compile the others too, or copy that file from the '
      'machine where they were compiled'
    )
  files.write(_PAGE, f'{before}{_BEGIN}\n{new}{_END}{after}'.encode())


def _tables(found: dict[str, Any]) -> str:
  """Returns a table for each size and kind of scaling, with the fastest mesh in bold."""
  from benchmarks.tpu_costs import estimate

  text = ''
  for scaling in ('weak', 'strong'):
    for size in ('base', 'big'):
      done = sorted(
        (
          cell for cell in cells() if cell[:2] == (size, scaling) and cell.name in found
        ),
        key=lambda cell: _CHIPS[cell.topology],
      )
      lines = []
      for cell in done:
        rivals = [
          found[rival.name] for rival in done if rival.topology == cell.topology
        ]
        quickest = min(
          filter(estimate.fits, rivals),
          key=lambda figures: sum(figures['seconds'].values()),
          default=None,
        )
        fastest = len(rivals) > 1 and quickest is found[cell.name]
        lines.append(_line(cell, found[cell.name], fastest))
      if lines:
        text += f'\n### {size.capitalize()}, {scaling} scaling\n\n'
        text += ''.join(
          f'| {" | ".join(line)} |\n'
          for line in (_HEADS, ('---',) * len(_HEADS), *lines)
        )
  return text + '\n'


def _line(cell: Cell, result: dict[str, Any], fastest: bool) -> tuple[str, ...]:
  """Returns a row of a table."""
  mesh = ' × '.join(
    f'{axis} {size}' for axis, size in result['mesh'].items() if size > 1
  )
  start = (
    f'{_CHIPS[cell.topology]:,} {cell.topology.partition(":")[0]}',
    f'**{mesh}**' if fastest else mesh,
    f'{result["tokens_per_batch"]:,}',
  )
  if result['memory'] is None:
    return (*start, 'too much', *[''] * 8, result['commit'][:7])
  sizes = {
    kind: collective['bytes'] for kind, collective in result['collectives'].items()
  }
  reduced, gathered = sizes.pop('all-reduce'), sizes.pop('all-gather')
  count = sum(collective['count'] for collective in result['collectives'].values())
  seconds = result['seconds']
  return (
    *start,
    f'{result["memory"]["total"] / 1e9:.2f} GB',
    *(f'{size / 1e6:,.0f} MB' for size in (reduced, gathered, sum(sizes.values()))),
    f'{count}',
    f'{result["flops"]["model"] / 1e12:.3g}',
    f'{1e3 * seconds["compute"]:.2f} ms',
    f'{1e3 * seconds["communication"]:.2f} ms',
    f'{result["utilization"]:.1%}',
    result['commit'][:7],
  )


if __name__ == '__main__':
  command_line.run(main)
