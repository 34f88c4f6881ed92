"""The audit prints its report as a table or JSON, and a mistake in one line."""

import json
import os
import subprocess
import sys

import pytest

from tests.running_commands import ROOT


@pytest.fixture(scope='module')
def audit(start_command):
  yield from start_command('transformer.tools.audit.__main__')


def test_the_report_is_a_table_and_json(audit, folder, tmp_path):
  flags = [f'--config={folder}/tiny.py', '--config.data.train=unequal',
           '--config.data.vocabulary_size=290']
  status, table, err = audit(*flags, f'--json={tmp_path}/new/report.json')
  assert status == 0, err
  assert 'NOT ALIGNED: 4 and 3 lines; ' in table and 'vocabulary: 290 pieces' in table
  report = json.loads((tmp_path / 'new' / 'report.json').read_text('utf-8'))
  status, out, err = audit(*flags, '--json=-', '--examples=0')
  assert status == 0, err
  printed = json.loads(out)
  assert printed['corpora']['test']['pairs'] == report['corpora']['test']['pairs'] == 2
  assert printed['data'] == report['data'] and report['data']['train'] == ['unequal']
  findings = printed['corpora']['test']['findings']
  assert findings and not any(finding['examples'] for finding in findings)


@pytest.mark.long
def test_without_configs_it_takes_those_of_a_checkout(folder, tmp_path):
  """Where `transformer` lies alone, the path of a config leads to the others."""
  (tmp_path / 'installed').mkdir()
  (tmp_path / 'installed' / 'transformer').symlink_to(ROOT / 'transformer')
  (tmp_path / 'mine.py').write_text('from configs.base import get_config\n')

  def run(config):
    return subprocess.run(
        [sys.executable, '-m', 'transformer.tools.audit', f'--config={config}',
         f'--config.data.dir={folder}', '--config.data.vocabulary_size=290'], cwd=tmp_path,
        env={**os.environ, 'PYTHONPATH': str(tmp_path / 'installed')}, text=True,
        capture_output=True)

  done = run(ROOT / 'configs' / 'text.py')
  assert done.returncode == 0 and 'vocabulary: 290 pieces' in done.stdout, done.stderr
  refused = run('mine.py')
  assert refused.returncode == 1
  assert (f"No module named 'configs'; modules of configs are looked for in {tmp_path}/configs and "
          f'in {tmp_path}/installed/configs') in refused.stderr


def test_a_runs_vocabulary_can_be_asked_about(audit, folder, trained):
  status, table, err = audit(f'--config={folder}/tiny.py',
                             f'--vocabulary={trained}/vocabulary.model')
  assert status == 0, err
  assert f'vocabulary: 300 pieces, from {trained}/vocabulary.model' in table


@pytest.mark.parametrize(('flags', 'facts'), [
    ([], ['--config=configs/NAME.py is needed']),
    (['--config={folder}/tiny.py', '--examples=-1'], ['--examples must be at least 0; got -1']),
    (['--config={folder}/tiny.py', '--json='], ['--json= names nothing']),
    (['--config={folder}/tiny.py', '--json={folder}'], ['--json must name a file']),
    (['--config={folder}/tiny.py', '--json={folder}/tiny.py/x'], ['--json needs a directory']),
    (['--config={folder}/tiny.py', '--vocabulary=/nowhere/v'], ['/nowhere/v cannot be read']),
    (['--config={folder}/tiny.py', '--config.train.init_from=/a/run'],
     ['from train.init_from', '--vocabulary=/a/run']),
    (['--config={folder}/tiny.py', '--config.data.max_length_ratio=0.5'],
     ['data.max_length_ratio must be 0', 'got 0.5']),
    (['--config={folder}/tiny.py', '--config.data.trian=x'], ['no key config.data.trian']),
])
def test_a_mistake_is_one_line(audit, folder, flags, facts):
  message = audit.refuses(*(flag.format(folder=folder) for flag in flags))
  for fact in facts:
    assert fact in message, message


def test_what_is_read_is_not_replaced(audit, folder, trained):
  vocabulary = trained / 'vocabulary.model'
  for path in (folder / 'train.en', folder / 'test.de', vocabulary):
    before = path.read_bytes()
    message = audit.refuses(f'--config={folder}/tiny.py', f'--vocabulary={vocabulary}',
                            f'--json={path}')
    assert message.startswith(f'--json={path} would replace what is read'), message
    assert path.read_bytes() == before


def test_it_runs_as_a_module(folder):
  done = subprocess.run(
      [sys.executable, '-m', 'transformer.tools.audit', f'--config={folder}/tiny.py',
       '--config.data.vocabulary_size=290'], cwd=ROOT, text=True, capture_output=True)
  assert done.returncode == 0, done.stderr
  assert done.stdout.startswith(f'train/train: {folder}/train, 12 pairs\n')


def test_help_names_what_it_is_and_every_flag():
  done = subprocess.run([sys.executable, '-m', 'transformer.tools.audit', '--help'], cwd=ROOT,
                        text=True, capture_output=True)
  assert (done.returncode, done.stderr) == (0, '')
  for flag in ('--config', '--vocabulary', '--json', '--examples'):
    assert flag in done.stdout
