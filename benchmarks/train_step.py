"""Times an update of this project beside its peers', all taking turns in one run.

  python benchmarks/train_step.py                      # on a CPU: tiny and base, float32
  python benchmarks/train_step.py --size=base --turns=3
  python benchmarks/train_step.py --flax=DIR           # with a clone of google/flax beside it

Every system gets the same full batch of random tokens, dropout, label smoothing
and Adam; a time is that of one whole update. Packages: benchmarks/requirements.txt;
a system whose package is missing is left out, and named.
"""

import sys
from pathlib import Path

from absl import app, flags

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from side_by_side import System, machine, take_turns
from work import Work

from transformer.model.config import ModelConfig

_SIZE = flags.DEFINE_multi_enum('size', ['tiny', 'base'], ['tiny', 'base'], 'Which shapes.')
_TURNS = flags.DEFINE_integer('turns', 5, 'How often each system has its turn.')
_RUNS = flags.DEFINE_integer('runs', 2, 'Timed updates in a turn, after one that is not.')
_FLAX = flags.DEFINE_string('flax', None, 'A clone of https://github.com/google/flax.')

WORK = {
    'tiny': Work(ModelConfig(num_layers=4, model_dim=128, ff_dim=256, num_heads=4), 8000, 256, 16),
    'base': Work(ModelConfig(), 32_000, 32, 64),
}


def systems(work: Work) -> list[System]:
  """This project first, then its peers."""
  def pytorch(name, compiled, paper_dropout):
    return System(name, 'peers.pytorch', 'make_update', (work, compiled, paper_dropout))

  flax = [System('Flax `examples/wmt`', 'peers.flax_wmt', 'make_update', (work, _FLAX.value))]
  return [System('this project', 'this_project', 'make_update', (work,)),
          pytorch('PyTorch `nn.Transformer`', False, False),
          pytorch('the same, `torch.compile`', True, False),
          pytorch('the same, dropout as in the paper', False, True),
          pytorch('the same, both', True, True),
          *(flax if _FLAX.value else [])]


def main(_):
  """Prints a table a size."""
  print(machine(), flush=True)
  for size in dict.fromkeys(_SIZE.value):
    work = WORK[size]
    print(f'\n{size}: {work}\n', flush=True)
    measured, failed = take_turns(systems(work), _TURNS.value, _RUNS.value)
    ours = measured['this project'].median
    print('| system | seconds an update, median | fastest … slowest | core-seconds | target tokens '
          'a second | peak memory | this project is faster by |\n'
          '| --- | --- | --- | --- | --- | --- | --- |')
    for name, each in measured.items():
      print(f'| {name} | {each.median:.3f} | {min(each.seconds):.3f} … {max(each.seconds):.3f} | '
            f'{min(each.cpu_seconds):.2f} | {work.rows * work.length / each.median:,.0f} | '
            f'{each.peak_bytes / 1e9:.1f} GB | {each.median / ours:.2f} × |')
    for name, reason in failed.items():
      print(f'\n{name} was left out: {reason}')


if __name__ == '__main__':
  app.run(main)
