"""The audit prints its report as a table or JSON, and a user error in one line."""

import json

import pytest


@pytest.fixture(scope='module')
def audit(start_command):
  yield from start_command('transformer.tools.audit.__main__')


def test_the_report_is_a_table_and_json(audit, folder, trained, tmp_path):
  flags = [
    f'--config={folder}/tiny.py',
    '--config.data.train=unequal',
    '--config.data.vocabulary_size=290',
  ]
  status, table, err = audit(
    *flags, f'--json={tmp_path}/new/report.json', '--examples=0'
  )
  assert status == 0, err
  assert 'NOT ALIGNED: 4 and 3 lines; ' in table and ' line 1' not in table
  report = json.loads((tmp_path / 'new' / 'report.json').read_text('utf-8'))
  assert list(report) == ['train/unequal', 'valid', 'test']
  for found in report.values():
    for lines in found.values():
      assert all(1 <= line <= 4 for line in lines)
  assert any(report['test'].values())


def test_the_vocabulary_of_a_run_is_taken(audit, folder, trained):
  status, table, err = audit(
    f'--config={folder}/tiny.py', f'--config.train.init_from={trained}'
  )
  assert status == 0 and 'training a vocabulary' not in err, err
  assert 'train/train: ' in table


@pytest.mark.parametrize(
  ('flags', 'fact'),
  [
    ([], '--config is missing'),
    (
      ['--config={folder}/tiny.py', '--examples=-1'],
      '--examples must be at least 0; got -1',
    ),
    (['--config={folder}/tiny.py', '--config.train.init_from=/a/run'], '/a/run'),
    (['--config={folder}/tiny.py', '--config.data.train=gone'], 'gone.en'),
    (
      ['--config={folder}/tiny.py', '--config.data.vocabulary_size=9999'],
      'vocabulary_size=9999 is too large',
    ),
    (
      ['--config={folder}/tiny.py', '--json={folder}/train.en'],
      'would overwrite',
    ),
  ],
)
def test_user_error_is_a_one_line_message(audit, folder, flags, fact):
  before = (folder / 'train.en').read_bytes()
  assert fact in audit.rejects(*(flag.format(folder=folder) for flag in flags))
  assert (folder / 'train.en').read_bytes() == before
