"""The command that compiles a training step for GPUs, and its one-line errors."""

import importlib.util
import json

import pytest

from benchmarks.gpu_costs import chips
from tests.benchmarks import tiny_model

TINY = [
  *tiny_model.FLAGS,
  '--config.model.attention=cudnn',
  '--config.data.max_length=64',
  '--config.train.tokens_per_batch=1024',
]
INSTALLED = importlib.util.find_spec('jax_cuda12_plugin') is not None


@pytest.fixture(scope='module')
def compile_command(start_command):
  yield from start_command('benchmarks.gpu_costs.__main__')


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--chip=h100'], '--config is missing'),
    ([*TINY, '--chip=v100'], '--chip must be one of h100, h200, '),
    ([*TINY, '--chip=none.json'], '--chip=none.json cannot be read'),
    ([*TINY, '--topology=8'], '--topology must be 1xHOSTSxGPUS'),
    ([*TINY, '--hlo=/dev/null/x.hlo'], '--hlo needs a directory'),
    pytest.param(
      TINY,
      'the compiler for GPUs is not installed; ',
      marks=pytest.mark.skipif(INSTALLED, reason='it is installed'),
    ),
  ],
)
def test_user_errors_are_one_line_messages(compile_command, arguments, message):
  status, out, err = compile_command(*arguments)
  assert (status, out) == (1, '')
  assert err.startswith(f'error: {message}') and err.count('\n') == 1


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'bandwidth': '3 TB/s'}, 'wrong value for bandwidth'),
    ({'cores': -1}, 'wrong value for cores'),
    ({'price': 3.0}, 'and nothing else'),
  ],
)
def test_a_custom_chip_is_checked(compile_command, tmp_path, change, message):
  known = json.loads(chips.CHIPS.read_text('utf-8'))
  path = tmp_path / 'chip.json'
  path.write_text(json.dumps(known['h100']), 'utf-8')
  assert chips.chip_of(str(path)) == chips.chip_of('h100')
  path.write_text(json.dumps(known['h100'] | change), 'utf-8')
  assert message in compile_command.rejects(*TINY, f'--chip={path}')


@pytest.mark.long
@pytest.mark.skipif(not INSTALLED, reason='needs the compiler for GPUs')
def test_a_training_step_is_compiled_for_two_hosts(compile_command, tmp_path):
  status, out, err = compile_command(
    *TINY,
    '--topology=1x2x4',
    '--by=place',
    f'--json={tmp_path}/x.json',
    f'--hlo={tmp_path}/x.hlo',
  )
  assert status == 0, err
  assert out.startswith(
    'h100 1x2x4, 8 chips: 16 rows of 64 + 64 tokens, bfloat16, commit '
  )
  assert (tmp_path / 'x.hlo').read_text('utf-8').startswith('HloModule')
  costs = json.loads((tmp_path / 'x.json').read_text('utf-8'))
  assert costs['mesh'] == {'data': 8, 'fsdp': 1, 'tensor': 1} and costs['fits']
  assert costs['collectives']['all-reduce']['bytes'] > 1e6
  seconds = costs['seconds']
  assert min(seconds.values()) > 0 and 0 < costs['utilization'] < 1
