"""The audit prints its report as a table or JSON, and a mistake in one line."""

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
  assert 'NOT ALIGNED: 4 and 3 lines; ' in table and 'vocabulary: 290 pieces' in table
  report = json.loads((tmp_path / 'new' / 'report.json').read_text('utf-8'))
  assert report['corpora']['test']['pairs'] == 2 and report['data']['train'] == [
    'unequal'
  ]
  found = report['corpora']['test']['findings']
  assert found and not any(finding['examples'] for finding in found)
  status, table, err = audit(
    f'--config={folder}/tiny.py', f'--config.train.init_from={trained}'
  )
  assert status == 0, err
  assert f'vocabulary: 300 pieces, from {trained}' in table


@pytest.mark.parametrize(
  ('flags', 'fact'),
  [
    ([], '--config=configs/NAME.py is needed'),
    (
      ['--config={folder}/tiny.py', '--examples=-1'],
      '--examples must be at least 0; got -1',
    ),
    (['--config={folder}/tiny.py', '--config.train.init_from=/a/run'], '/a/run'),
    (['--config={folder}/tiny.py', '--config.data.train=gone'], 'gone.en'),
    (
      ['--config={folder}/tiny.py', '--config.data.vocabulary_size=9999'],
      'vocabulary_size=9999 is more than',
    ),
    (
      ['--config={folder}/tiny.py', '--json={folder}/train.en'],
      'would replace what is read',
    ),
  ],
)
def test_a_mistake_is_one_line(audit, folder, flags, fact):
  before = (folder / 'train.en').read_bytes()
  assert fact in audit.refuses(*(flag.format(folder=folder) for flag in flags))
  assert (folder / 'train.en').read_bytes() == before
