"""Times a training step of this project against other toolkits; all systems take turns in one run.

  python benchmarks/train_step.py                      # on a CPU: tiny, base; float32, bfloat16
  python benchmarks/train_step.py --flax=DIR           # also a clone of google/flax
  python benchmarks/train_step.py --size=base --turns=3
  python benchmarks/train_step.py                      # on a GPU: base and big, bfloat16

All systems have the same full batch of random tokens, dropout rate, label smoothing and Adam. Times
are of whole training steps. On a GPU, this project's rows of 256 contain eight sentence pairs
each, separated by segments. PyTorch's rows contain one pair, as its fastest fused attention
requires. Packages: jax, flax, optax and absl for this project, benchmarks/requirements.txt for the
others. A system without its package is skipped and reported.
"""

import dataclasses
import os
import sys
from pathlib import Path

from absl import app, flags

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from side_by_side import System, machine, time_in_turns
from workload import ON_A_CPU, ON_A_GPU, Workload

from transformer.model.flops import peak_flops, transformer_flops_per_token

_SIZE = flags.DEFINE_multi_enum(
  'size',
  [],
  ['tiny', 'base', 'big'],
  'The model sizes; the default depends on the machine.',
)
_TURNS = flags.DEFINE_integer(
  'turns', 5, 'Number of turns of each system.', lower_bound=1
)
_RUNS = flags.DEFINE_integer(
  'runs', 2, 'Timed training steps in a turn, after an untimed one.', lower_bound=1
)
_FLAX = flags.DEFINE_string('flax', None, 'A clone of https://github.com/google/flax.')


def systems(work: Workload, on_a_gpu: bool) -> list[System]:
  """Returns the systems: this project first, then the other toolkits."""

  def pytorch(name, compiled, paper_dropout, work=work):
    return System(
      name,
      'baselines.pytorch',
      'make_training_step_benchmark',
      (work, compiled, paper_dropout),
    )

  narrow = work._replace(model=dataclasses.replace(work.model, dtype='bfloat16'))
  on_a_cpu = [
    System(
      'this project, bfloat16',
      'this_project',
      'make_training_step_benchmark',
      (narrow,),
    ),
    pytorch('PyTorch, dropout as in the paper, bfloat16', False, True, narrow),
    pytorch('PyTorch, both, bfloat16', True, True, narrow),
  ]
  exact = [
    System(
      'this project, `train.reproducible`',
      'this_project',
      'make_training_step_benchmark',
      (work, True),
    )
  ]
  flax = [
    System(
      'Flax `examples/wmt`',
      'baselines.flax_wmt',
      'make_training_step_benchmark',
      (work, _FLAX.value),
    )
  ]
  return [
    System('this project', 'this_project', 'make_training_step_benchmark', (work,)),
    *(exact if on_a_gpu else []),
    pytorch('PyTorch `nn.Transformer`', False, False),
    pytorch('the same, `torch.compile`', True, False),
    pytorch('the same, dropout as in the paper', False, True),
    pytorch('the same, both', True, True),
    *([] if on_a_gpu else on_a_cpu),
    *(flax if _FLAX.value else []),
  ]


def main(_):
  """Prints a table for each size."""
  # Leaves the accelerator's memory for the systems' processes.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  import jax

  on_a_gpu = jax.default_backend() == 'gpu'
  peak = peak_flops(jax.devices()[0].device_kind)
  print(machine('jax', 'torch'), flush=True)
  for size in dict.fromkeys(
    _SIZE.value or (['base', 'big'] if on_a_gpu else ['tiny', 'base'])
  ):
    work = (ON_A_GPU if on_a_gpu else ON_A_CPU)[size]
    print(f'\n{size}: {work}\n', flush=True)
    measured, failed = time_in_turns(systems(work, on_a_gpu), _TURNS.value, _RUNS.value)
    tokens = work.rows * work.length
    flops = sum(transformer_flops_per_token(work.model, work.vocabulary_size)) * tokens
    print(
      '| system | seconds, median | fastest … slowest | core-seconds, least | target '
      'tokens a second | FLOPs utilization | peak memory | speedup (baseline / ours) |\n'
      '| --- | --- | --- | --- | --- | --- | --- | --- |'
    )
    for name, run in measured.items():
      utilization = f'{flops / run.median / peak:.0%}' if peak else '–'
      memory = run.notes.get('device_bytes', run.peak_bytes)
      faster = (
        f'{run.median / measured["this project"].median:.2f} ×'
        if 'this project' in measured
        else '–'
      )
      print(
        f'| {name} | {run.median:.3f} | {min(run.seconds):.3f} … {max(run.seconds):.3f} | '
        f'{min(run.cpu_seconds):.2f} | {tokens / run.median:,.0f} | {utilization} | '
        f'{memory / 1e9:.1f} GB | {faster} |'
      )
    for name, reason in failed.items():
      print(f'\n{name} was left out: {reason}')


if __name__ == '__main__':
  app.run(main)
