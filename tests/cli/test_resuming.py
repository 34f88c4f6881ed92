"""`train.py` resumes a run, and rejects a damaged run or another config."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

import transformer
from configs import base
from tests.command_fixtures import ROOT
from tests.experiment.tiny_runs import rows_of
from transformer import files
from transformer.config import Config
from transformer.errors import UserError
from transformer.runs import run_directory
from transformer.runs.run_directory import FORMAT


def files_of(run):
  return {
    path: (path.stat().st_mtime_ns, path.read_bytes())
    for path in run.rglob('*')
    if path.is_file()
  }


def test_another_config_for_a_run_is_rejected_with_every_difference(
  train, folder, trained
):
  before = files_of(trained)
  flags = f'--config={folder}/tiny.py', f'--workdir={trained}'
  message = train.rejects(
    *flags,
    '--config.model.ff_dim=13',
    '--config.seed=5',
    '--config.decode.bleu_tokenize=none',
    '--config.decode.beam_size=2',
    '--config.model.remat=True',
  )
  assert 'has a run with a different configuration' in message
  assert (
    'model.ff_dim was 11, is now 13' in message and 'seed was 0, is now 5' in message
  )
  assert "decode.bleu_tokenize was '13a', is now 'none'" in message
  assert 'beam_size' not in message and 'remat' not in message
  assert files_of(trained) == before


def test_a_run_resumes_or_another_starts_with_its_settings(
  train, folder, trained, tmp_path
):
  run = tmp_path / 'a:run'
  shutil.copytree(trained, run)
  (tmp_path / 'flags').write_text(f'--workdir={run}\n', 'utf-8')
  for flags in (
    [f'--workdir={run}'],
    ['-workdir', run],
    [f'--flagfile={tmp_path}/flags'],
  ):
    status, _, err = train(*flags, '--check')
    assert status == 0 and 'contains this run, which is finished' in err, err
  status, _, err = train(f'--workdir={run}', '--config.train.keep=3')
  assert status == 0 and 'the run is done: step 2 of 2' in err, err
  # A finished run is unchanged.
  assert run_directory.read_config_dict(run)['train']['keep'] == 5
  status, _, err = train(
    f'--workdir={run}', '--config.train.keep=3', '--config.train.steps=3'
  )
  assert status == 0 and 'the run is done: step 3 of 3' in err, err
  (session,) = json.loads((run / 'run.json').read_text('utf-8'))['resumed']
  assert session['changed'] == {
    'train.keep': {'from': 5, 'to': 3},
    'train.steps': {'from': 2, 'to': 3},
  }
  assert 'seed was 0, is now 7' in train.rejects(f'--workdir={run}', '--config.seed=7')
  settings = base.get_config(str(run)).to_dict()
  assert settings == Config.from_dict(run_directory.read_config_dict(run)).to_dict()
  assert settings['train']['keep'] == 3
  new = f'--workdir={tmp_path}/new'
  status, _, err = train(f'--config={run}', new, '--config.model.key_dim=5', '--check')
  assert status == 0 and 'is available for a new run' in err, err
  assert f'{folder} holds no run' in train.rejects(f'--config={folder}', new)
  (run / 'config.json').write_text('{"seed": 0}')
  for flags in ([f'--workdir={run}'], [f'--config={run}', new]):
    assert "config.json should contain the run's config" in train.rejects(*flags)


def test_starting_a_finished_run_leaves_its_record_unchanged(train, trained, tmp_path):
  run = shutil.copytree(trained, tmp_path / 'run')
  before = (run / 'run.json').read_bytes()
  for flags in ((), ('--config.train.keep=3',)):
    status, _, err = train(f'--workdir={run}', *flags)
    assert status == 0 and 'the run is done' in err, err
    assert (run / 'run.json').read_bytes() == before


@pytest.mark.long
def test_a_terminal_that_closes_leaves_a_saved_run(
  default_signal_handlers, folder, tmp_path
):
  run = tmp_path / 'run'
  terminal = subprocess.Popen(
    [
      sys.executable,
      '-c',
      'import pty, sys; pty.spawn(sys.argv[1:])',
      sys.executable,
      str(ROOT / 'train.py'),
      f'--config={folder}/tiny.py',
      f'--workdir={run}',
      '--config.train.log_every=1',
      *(
        f'--config.train.{name}=1000000'
        for name in ('steps', 'eval_every', 'checkpoint_every')
      ),
    ],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
    env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
  )
  try:
    # Before the first training step, the file is empty, and there is nothing to save.
    wait_until(lambda: any(path.stat().st_size for path in run.glob('metrics.jsonl')))
  finally:
    terminal.kill()
    terminal.wait()
  wait_until(lambda: not (run / 'lock.json').exists())
  (step,) = (run / 'checkpoints').iterdir()
  assert (step / 'unfinished').is_dir()


@pytest.mark.parametrize('number', [None, FORMAT + 1])
def test_a_run_of_another_format_is_rejected_wherever_it_is_opened(
  train, evaluate, folder, trained, tmp_path, number
):
  run = shutil.copytree(trained, tmp_path / 'run')
  about = files.read_sealed(run / 'run.json', 'the record')
  assert about.pop('format') == FORMAT
  files.write_sealed(
    run / 'run.json', about if number is None else {**about, 'format': number}
  )
  # What another version wrote may have other settings, too.
  settings = files.read_sealed(run / 'config.json', 'the config')
  settings['model']['of_another_version'] = 1
  files.write_sealed(run / 'config.json', settings)
  before = files_of(run)
  fresh = f'--config={folder}/tiny.py', f'--workdir={tmp_path}/new'
  messages = [
    train.rejects(*flags)
    for flags in (
      (f'--config={folder}/tiny.py', f'--workdir={run}'),
      (f'--workdir={run}',),
      (f'--config={run}', f'--workdir={tmp_path}/new'),
      (*fresh, '--check', f'--config.train.init_from={run}'),
    )
  ]
  messages.append(evaluate.rejects(f'--workdir={run}'))
  with pytest.raises(UserError) as error:
    transformer.load(run)
  messages.append(str(error.value))
  for message in messages:
    assert f'{run}/run.json should have the format {FORMAT}' in message
    assert (
      f'got {number}; train the run again, or use the version that wrote it' in message
    )
    assert '\n' not in message.strip()
  assert files_of(run) == before


def wait_until(happened):
  deadline = time.monotonic() + 120
  while not happened():
    assert time.monotonic() < deadline
    time.sleep(0.1)


@pytest.mark.parametrize(
  ('name', 'fact'),
  [
    ('run.json', 'run.json is missing, though the run has checkpoints; restore it'),
    ('config.json', 'is not empty and holds no run'),
  ],
)
def test_a_run_without_one_of_its_files_does_not_count_as_new(
  train, folder, trained, tmp_path, name, fact
):
  run = shutil.copytree(trained, tmp_path / 'run')
  (run / name).unlink()
  before = files_of(run)
  for flags in ((), ('--check',)):
    assert fact in train.rejects(
      f'--config={folder}/tiny.py', f'--workdir={run}', *flags
    )
  assert files_of(run) == before


@pytest.mark.parametrize('lost', ['checkpoints', 'checkpoints/*'])
def test_a_run_that_lost_checkpoints_never_starts_over_by_itself(
  train, folder, trained, tmp_path, lost
):
  run = shutil.copytree(trained, tmp_path / 'run')
  for path in run.glob(lost):
    shutil.rmtree(path)
  with (run / 'metrics.jsonl').open('a') as file:
    file.write('{"step": 9}\n')
  before = files_of(run)
  for flags in ((), ('--check',), ('--config.train.steps=9',)):
    message = train.rejects(f'--config={folder}/tiny.py', f'--workdir={run}', *flags)
    assert f'{run} was trained to step 9, but has no checkpoint' in message
  assert files_of(run) == before


@pytest.mark.long
def test_a_killed_start_can_be_repeated(train, folder, trained, tmp_path):
  """Kills while config.json is written, or after vocabulary.model, which is damaged later."""
  begun, nearly = tmp_path / 'begun', tmp_path / 'nearly'
  begun.mkdir()
  (begun / f'config.json.elsewhere.7.{"0" * 32}.tmp').write_text('{"se')
  shutil.copytree(
    trained,
    nearly,
    ignore=shutil.ignore_patterns(
      'checkpoints', 'run.json', 'metrics.jsonl', 'tensorboard'
    ),
  )
  whole = (nearly / 'vocabulary.model').read_bytes()
  (nearly / 'vocabulary.model').write_bytes(whole.replace(b'man', b'nan', 1))
  for workdir in (begun, nearly):
    status, _, err = train(f'--config={folder}/tiny.py', f'--workdir={workdir}')
    assert status == 0, err
    assert (workdir / 'vocabulary.model').read_bytes() == whole
    assert rows_of(workdir) == rows_of(trained)


@pytest.mark.long
def test_run_json_records_whether_the_run_is_reproducible(
  train, folder, trained, tmp_path
):
  about = json.loads((trained / 'run.json').read_text('utf-8'))
  assert about['reproducible'] is False
  assert not any('determin' in flag for flag in about['xla_flags'])
  flags = (
    f'--config={folder}/tiny.py',
    f'--workdir={tmp_path}/run',
    '--config.train.reproducible=True',
  )
  status, _, err = train(*flags)
  assert status == 0, err  # An unknown flag would end the process.
  about = json.loads((tmp_path / 'run' / 'run.json').read_text('utf-8'))
  assert about['reproducible'] is True
  assert about['xla_flags'][-2:] == [
    '--xla_gpu_deterministic_ops=true',
    '--xla_gpu_autotune_level=0',
  ]
  assert rows_of(tmp_path / 'run') == rows_of(trained)  # On a CPU it changes nothing.
  assert 'train.reproducible was True, is now False' in train.rejects(*flags[:2])
