"""The command that compiles a training step for TPUs, and its one-line errors."""

import importlib.util
import json

import pytest

from benchmarks.tpu_costs import __main__ as compile_for
from benchmarks.tpu_costs import estimate
from tests.benchmarks import tiny_model

TINY = [
  *tiny_model.FLAGS,
  '--config.data.max_length=32',
  '--config.train.tokens_per_batch=256',
]


@pytest.fixture(scope='module')
def compile_command(start_command):
  yield from start_command('benchmarks.tpu_costs.__main__')


def test_the_table_has_a_row_for_each_number():
  result = {
    'device_kind': 'TPU v5 lite',
    'mesh': {'data': 2, 'fsdp': 1, 'tensor': 2},
    'compile_seconds': 61.2,
    'memory': {'total': 2.5e9},
    'utilization': 0.2345,
    'collectives': {'all-reduce': {'count': 1234, 'bytes': 5_600_000_000, 'sent': 7e9}},
    'flops': {'model': 1.5e12, 'xla': 1.25e12},
    'seconds': {'compute': 0.0075, 'communication': 0.0025},
  }
  rows = dict(compile_for.table(result))
  assert rows['mesh'] == 'data 2 × tensor 2' and rows['memory, of 16 GB'] == '2.50 GB'
  assert rows['all-reduce'] == '5,600.0 MB in 1,234'
  assert (rows['estimated compute'], rows['utilization, estimated']) == (
    '7.50 ms',
    '23.4%',
  )
  assert dict(compile_for.table(result | {'memory': None})) == {
    'mesh': 'data 2 × tensor 2',
    'memory, of 16 GB': 'too much to compile',
    'compiled in': '61 s',
  }


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--topology=v5e:4x4'], 'a flag is missing; pass --config=configs/NAME.py'),
    ([*TINY, '--topology=v5e:3x3'], '--topology must be one of v5e:2x2, v5e:2x4, '),
    (
      [*TINY, '--topology=v5e:2x2', '--config.model.attention=cudnn'],
      'model.attention=cudnn needs an NVIDIA GPU; set --config.model.attention=reference',
    ),
    (
      [
        *TINY,
        '--topology=v5e:2x2',
        "--config.train.objective_runs=('runs/a',)",
        '--config.train.objective=transformer.tools.distil.objective:distillation',
      ],
      'train.objective_runs must be empty here, where no run is read; got runs/a; remove them',
    ),
    (
      [*TINY, '--topology=v5e:2x2', '--json=/dev/null/x.json'],
      '--json needs a directory',
    ),
  ],
)
def test_user_errors_are_one_line_messages(compile_command, arguments, message):
  status, out, err = compile_command(*arguments)
  assert (status, out) == (1, '')
  assert err.startswith(f'error: {message}') and err.count('\n') == 1


needs_libtpu = pytest.mark.skipif(
  importlib.util.find_spec('libtpu') is None,
  reason='needs libtpu, the compiler for TPUs',
)


@needs_libtpu
def test_a_training_step_is_compiled_for_a_tpu(compile_command, tmp_path):
  assert compile_command.rejects(*TINY, '--topology=v5e:8x16').startswith(
    'mesh.data × mesh.fsdp = 128 must divide the rows of a microbatch'
  )
  status, out, err = compile_command(
    *TINY, '--topology=v5e:2x2', f'--json={tmp_path}/x.json'
  )
  assert status == 0, err
  assert out.startswith('v5e:2x2, 4 chips: 8 rows of 32 + 32 tokens, bfloat16, commit ')
  (costs,) = json.loads((tmp_path / 'x.json').read_text(encoding='utf-8'))['meshes']
  assert costs['mesh'] == {'data': 4, 'fsdp': 1, 'tensor': 1}
  assert costs['device_kind'] == 'TPU v5 lite' and estimate.fits(costs)
  assert costs['seconds']['compute'] > 0 and 0 < costs['utilization'] < 1
  # 0.4 million parameters; the embedding table is reduced twice, in 32 bits.
  assert 1e6 < costs['collectives']['all-reduce']['bytes'] < 3e6
  assert costs['collectives']['all-gather']['bytes'] == 0
