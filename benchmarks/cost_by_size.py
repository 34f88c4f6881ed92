"""Measures how a training step's time and memory grow with row length, vocabulary and depth.

  python benchmarks/cost_by_size.py
  python benchmarks/cost_by_size.py --remat

The work is a training step of a model of width 128 on 4,096 source and 4,096 target positions, for
every row length. Memory is the compiled step's temporary memory, without its arguments. The growth
columns compare a line with the line above it.
"""

import dataclasses
import os
import sys
from pathlib import Path

from absl import app, flags

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from side_by_side import System, machine, time_in_turns
from workload import Workload

from transformer.model.config import ModelConfig

_TURNS = flags.DEFINE_integer(
  'turns', 3, 'Number of turns of each line.', lower_bound=1
)
_REMAT = flags.DEFINE_bool('remat', False, 'With config.model.remat.')

_POSITIONS = 4096
_MODEL = ModelConfig(num_layers=2, model_dim=128, ff_dim=512, num_heads=4)


def tables():
  """Yields the name of each dimension that grows, and the work by its size."""

  def work(length=64, vocabulary_size=8000, num_layers=2):
    model = dataclasses.replace(_MODEL, num_layers=num_layers, remat=_REMAT.value)
    return Workload(model, vocabulary_size, _POSITIONS // length, length)

  yield (
    'row length',
    {length: work(length=length) for length in (64, 128, 256, 512, 1024, 2048)},
  )
  yield (
    'vocabulary',
    {size: work(vocabulary_size=size) for size in (8000, 16_000, 32_000, 64_000)},
  )
  yield 'layers', {count: work(num_layers=count) for count in (2, 4, 8)}


def main(_):
  """Prints the tables."""
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  print(machine('jax'))
  for title, works in tables():
    lines = [
      System(f'{size:,}', 'this_project', 'make_training_step_benchmark', (work,))
      for size, work in works.items()
    ]
    measured, failed = time_in_turns(lines, _TURNS.value, 1)
    print(
      f'\n| {title} | seconds, median | grows by | temporary memory | grows by |\n'
      '| --- | --- | --- | --- | --- |'
    )
    before = None
    for name, timing in measured.items():
      seconds, memory = timing.median, timing.notes['temporary_bytes']
      growth = (
        [
          f'{now / then:.2f} ×'
          for now, then in zip((seconds, memory), before, strict=True)
        ]
        if before
        else ['', '']
      )
      print(
        f'| {name} | {seconds:.3f} | {growth[0]} | {memory / 1e6:,.0f} MB | {growth[1]} |'
      )
      before = seconds, memory
    for name, reason in failed.items():
      print(f'\n{name} was left out: {reason}')


if __name__ == '__main__':
  app.run(main)
