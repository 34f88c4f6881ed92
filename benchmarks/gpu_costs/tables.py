"""Compiles the paper's models for several GPUs, and prints tables of their costs.

  .venv-gpu/bin/python -m benchmarks.gpu_costs.tables

A compilation takes minutes. Results are cached in runs/gpu_costs.json, and a later start compiles
only the missing ones. Each GPU has 65,536 target tokens per training step, in rows of 256.
"""

import dataclasses
import json
import os
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from benchmarks.compiled.training_step import compile_training_step, mesh_of
from benchmarks.gpu_costs import estimate
from benchmarks.gpu_costs.chips import chip_of, devices_of
from transformer import files
from transformer.config import Config
from transformer.errors import UserError
from transformer.system import command_line
from transformer.training.config import MeshConfig

_ROOT = Path(__file__).resolve().parents[2]
_DATA = _ROOT / 'runs' / 'gpu_costs.json'
_TOKENS = 65_536  # target tokens per GPU and training step
_HEADS = (
  'chip',
  'GPUs',
  'mesh',
  'memory',
  'products',
  'attention',
  'other',
  'collectives',
  'training step',
  'utilization',
)


class Cell(NamedTuple):
  """A compilation: base or big, a chip, hosts of eight GPUs or one GPU, and a mesh."""

  size: str
  chip: str
  topology: str
  mesh: MeshConfig = MeshConfig()

  @property
  def name(self) -> str:
    """The name in the results."""
    mesh = self.mesh
    axes = f'{mesh.data}x{mesh.fsdp}x{mesh.tensor}'
    return f'{self.size} {self.chip} {self.topology} {axes}'

  @property
  def gpus(self) -> int:
    """The number of GPUs."""
    _, hosts, of_host = self.topology.split('x')
    return int(hosts) * int(of_host)

  @property
  def settings(self) -> Config:
    """The paper's config in bfloat16 with cuDNN's attention."""
    get_config = runpy.run_path(str(_ROOT / 'configs' / 'wmt14.py'))['get_config']
    config = get_config(self.size)
    config.model.dtype = 'bfloat16'
    config.model.attention = 'cudnn'
    config.train.tokens_per_batch = _TOKENS * self.gpus
    return dataclasses.replace(Config.from_dict(config.to_dict()), mesh=self.mesh)


def cells(size: str) -> list[Cell]:
  """Returns the compilations of a table, the most important first."""
  return [
    Cell(size, 'h100', '1x1x1'),
    Cell(size, 'h100', '1x1x8'),
    Cell(size, 'a100-80gb', '1x1x8'),
    Cell(size, 'h200', '1x1x8'),
    Cell(size, 'a100-40gb', '1x1x8'),
    Cell(size, 'h100', '1x1x8', MeshConfig(data=1, fsdp=8)),
    Cell(size, 'h100', '1x1x8', MeshConfig(data=2, tensor=4)),
    Cell(size, 'h100', '1x2x8'),
  ]


def main(_):
  """Compiles the missing cells, and prints the tables of all results."""
  os.nice(10)  # It runs for a long time, with other work on the machine.
  found = json.loads(_DATA.read_text(encoding='utf-8')) if _DATA.exists() else {}
  _DATA.parent.mkdir(exist_ok=True)
  for cell in [*cells('base'), *cells('big')]:
    if cell.name in found:
      continue
    logging.info('compiling %s', cell.name)
    chip = chip_of(cell.chip)
    compiled = compile_training_step(cell.settings, devices_of(chip, cell.topology))
    if not compiled.text:
      raise UserError(f'{cell.name} does not fit into the memory of a GPU')
    per_host = int(cell.topology.rpartition('x')[2])
    found[cell.name] = estimate.cost(compiled, chip, per_host)
    files.write_json(_DATA, found)
  for size in 'base', 'big':
    print(f'\n{size}\n\n{_table(cells(size), found)}')


def _table(wanted: Sequence[Cell], found: dict[str, Any]) -> str:
  lines = [_HEADS, ['---'] * len(_HEADS)]
  for cell in wanted:
    result = found[cell.name]
    seconds = result['seconds']
    lines.append(
      [
        cell.chip,
        str(cell.gpus),
        mesh_of(result),
        f'{result["memory"]["total"] / 1e9:.1f} GB',
        *(f'{1e3 * value:.1f} ms' for value in seconds.values()),
        f'{result["utilization"]:.1%}',
      ]
    )
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


if __name__ == '__main__':
  command_line.run(main)
