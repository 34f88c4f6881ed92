"""The summary of a job has the numbers of its run, and names their sources."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launch.config_file import with_settings
from transformer import files
from transformer.config import Config
from transformer.model.config import ModelConfig
from transformer.model.flops import transformer_flops_per_token
from transformer.runs import run_directory
from transformer.tools.summary.job import describe
from transformer.tools.summary.memory import needed_bytes
from transformer.tools.summary.report import as_text, summarize
from transformer.tools.summary.speed import CHIPS, step_time

ROOT = Path(__file__).parents[3]
BIG = {'model.model_dim': 1024, 'model.ff_dim': 4096, 'model.num_heads': 16}
# As measured in benchmarks/README.md.
ON_A_GPU = {
  'data.vocabulary_size': 32_000,
  'model.dtype': 'bfloat16',
  'model.attention': 'cudnn',
  'train.tokens_per_batch': 65_536,
}


@pytest.fixture(scope='module')
def summary(start_command):
  yield from start_command('transformer.tools.summary.__main__')


def test_a_check_prints_what_the_run_then_has(train, folder, trained, tmp_path):
  start = f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run', '--check'
  status, out, err = train(*start, '--json')
  assert status == 0, err
  found = json.loads(out)
  about = files.read_sealed(trained / run_directory.RUN, 'the run')
  assert found['job']['parameters'] == about['parameters']
  assert found['job']['pairs'] == about['counts']['train/train']['kept'] > 0
  assert found['job']['validation_pairs'] == about['counts']['valid']['kept'] > 0
  assert found['job']['target_tokens'] > found['job']['pairs']
  epochs = found['job']['steps'] / found['job']['steps_per_epoch']
  assert found['job']['epochs'] == round(epochs, 1)
  steps = [path for path in (trained / 'checkpoints').iterdir() if path.name.isdigit()]
  size = sum(path.stat().st_size for path in steps[0].rglob('*'))
  one = found['job']['checkpoints_disk_bytes'] / found['job']['checkpoints']
  assert one <= size <= one + 500_000  # Each has files of metadata, too.

  status, text, err = train(*start)
  assert status == 0, err
  assert f'{about["parameters"]:,}' in text
  assert 'warning: ' in text and 'optimizer.warmup_steps=4000, train.steps=2' in text


def test_without_data_it_prints_the_known_numbers(summary, tmp_path):
  flags = '--config=configs/wmt14.py:big', '--read_data=false', '--chip=h100', '--json'
  status, out, err = summary(*flags, f'--workdir={tmp_path}/new/run')
  assert status == 0, err
  found = json.loads(out)
  assert found['job']['parameters'] == 214_171_648
  assert 'pairs' not in found['job']
  # configs/wmt14.py: 20 checkpoints take about 51 GB.
  disk = found['job']['checkpoints_disk_bytes'] * 20 / found['job']['checkpoints']
  assert disk == pytest.approx(51e9, rel=0.02)
  assert [row['chip'] for row in found['chips']] == ['h100']
  assert not (tmp_path / 'new').exists()


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    ((), '--config=configs/NAME.py'),
    (('--config=configs/quickstart.py', '--chip=abacus'), '--chip must be one of h100'),
    (
      ('--config=configs/wmt14.py', '--read_data=false', '--devices=8'),
      'must divide the rows',
    ),
    (('--config=configs/wmt14.py', '--read_data=false', '--devices=0'), '--devices'),
  ],
)
def test_user_error_is_a_one_line_message(summary, flags, message):
  assert message in summary.rejects(*flags)


def test_a_plugin_that_is_on_other_machines_leaves_the_rest(summary):
  flags = '--config=configs/quickstart.py', '--read_data=false', '--json'
  status, out, err = summary(*flags, '--config.model.module=elsewhere:Model')
  assert status == 0, err
  found = json.loads(out)
  assert found['job']['parameters'] is None
  assert found['job']['steps'] == 1200
  assert found['chips'][0]['seconds'] is None
  status, out, err = summary(*flags[:2], '--config.model.module=elsewhere:Model')
  assert status == 0 and 'unknown' in out, err


@pytest.mark.parametrize(
  ('size', 'chip', 'hours'),
  # 100,000 and 300,000 steps of 65,536 tokens at the measured rates.
  [({}, 'h100', 2.71), (BIG, 'h100', 18.7), ({}, 'h200', 2.50), (BIG, 'h200', 17.9)],
)
def test_the_jobs_of_the_scaling_page_take_their_measured_time(
  size, chip, hours, tmp_path
):
  steps = 300_000 if size else 100_000
  config = with_settings(Config(), {**ON_A_GPU, **size, 'train.steps': steps})
  (row,) = summarize(describe(config), tmp_path, chip)['chips']
  assert row['seconds'] / 3600 == pytest.approx(hours, rel=0.01)
  assert row['time_is_from'].startswith('measured: ') and row['fits']


def test_other_models_and_types_have_an_estimate(tmp_path):
  for settings in (
    {**ON_A_GPU, 'model.num_layers': 5},
    {'data.vocabulary_size': 32_000},
    {**ON_A_GPU, 'train.objective': 'transformer.tools.r_drop:r_drop'},
    {**ON_A_GPU, 'train.tokens_per_batch': 32_768},
    {**ON_A_GPU, 'train.tokens_per_batch': 262_144, 'mesh.data': 4},
  ):
    for row in summarize(describe(with_settings(Config(), settings)), tmp_path)[
      'chips'
    ]:
      if row['chip'] != 'cpu':
        assert not row['time_is_from'].startswith('measured'), row
  never = {name for name, chip in CHIPS.items() if len(chip['rates']) == 1}
  assert never == {'a100-80gb', 'a100-40gb', 'v5e', 'v5p'}
  for name in never:
    assert 'assumed' in CHIPS[name]['rates'][0]['source']


def test_rates_match_the_measured_tokens_and_have_a_source():
  for chip in CHIPS.values():
    for rate in chip['rates']:
      assert rate['source']
      if 'tokens_per_second' in rate:
        names = ('model_dim', 'ff_dim', 'num_layers')
        model = ModelConfig(**{name: rate['model'][name] for name in names})
        flops = sum(transformer_flops_per_token(model, rate['vocabulary']))
        assert rate['flops_per_second'] == pytest.approx(
          rate['tokens_per_second'] * flops
        )
        _, page = rate['source'].rstrip(')').split(', ')[-2:]
        words = (ROOT / page).read_text('utf-8')
        tokens = f'{rate["tokens_per_second"]:,}'
        # On a CPU, the page has the seconds of a step of 2,048 tokens.
        assert tokens in words or (tokens == '448' and '| 4.57, ' in words)


@pytest.mark.parametrize(('size', 'measured'), [({}, 16.8e9), (BIG, 34.2e9)])
def test_the_formula_for_memory_is_near_what_a_gpu_needed(size, measured):
  job = describe(with_settings(Config(), {**ON_A_GPU, **size}))
  assert needed_bytes(job) == pytest.approx(measured, rel=0.08)


def test_devices_share_rows_state_and_time():
  one = describe(with_settings(Config(), ON_A_GPU))
  assert one.rows_per_device == 256
  eight = describe(with_settings(Config(), ON_A_GPU), 8)
  assert eight.rows_per_device == 32
  seconds, _ = step_time(one, 'h100')
  assert step_time(eight, 'h100')[0] == pytest.approx(seconds / 8)
  split = describe(
    with_settings(Config(), {**ON_A_GPU, 'mesh.data': 1, 'mesh.fsdp': 8})
  )
  assert split.devices == 8 and split.rows_per_device == 32
  saved = needed_bytes(eight) - needed_bytes(split)
  assert saved == pytest.approx(
    7 / 8 * (one.state_bytes + 4 * one.parameters), rel=0.01
  )
  heads = describe(with_settings(Config(), {**ON_A_GPU, 'mesh.tensor': 4}), 8)
  assert heads.rows_per_device == 128
  parts = {'mesh.data': 2, 'mesh.tensor': -1}
  assert (
    describe(with_settings(Config(), {**ON_A_GPU, **parts}), 8).rows_per_device == 128
  )


def test_less_is_kept_with_remat_and_with_fused_attention():
  kept = needed_bytes(describe(with_settings(Config(), ON_A_GPU)))
  again = {**ON_A_GPU, 'model.remat': True}
  assert needed_bytes(describe(with_settings(Config(), again))) < kept / 3
  plain = {**ON_A_GPU, 'model.attention': 'reference'}
  assert needed_bytes(describe(with_settings(Config(), plain))) > 1.5 * kept


def test_too_small_a_device_and_disk_are_named(tmp_path, monkeypatch):
  job = describe(with_settings(Config(), ON_A_GPU))
  monkeypatch.setattr('shutil.disk_usage', lambda path: type('', (), {'free': 9})())
  found = summarize(job, tmp_path, 'v5e')
  assert not found['chips'][0]['fits']
  assert [warning['setting'] for warning in found['warnings']] == ['train.keep']
  text = '\n'.join(as_text(found))
  assert 'too small' in text and 'train.keep=5' in text


def test_slurm_prints_the_summary_with_the_job(tmp_path):
  launcher = [sys.executable, 'launch/slurm.py', '--dry_run', '--sbatch=--gpus=8', '--']
  job = [
    '--config=configs/quickstart.py',
    f'--workdir={tmp_path}/run',
    '--read_data=false',
  ]
  done = subprocess.run(
    [*launcher, *job], cwd=ROOT, check=True, text=True, capture_output=True
  )
  assert done.stdout.startswith('sbatch ')
  assert 'parameters ' not in done.stdout
  assert 'parameters ' in done.stderr
  assert 'gives each of 8 devices 256 target tokens' in done.stderr
