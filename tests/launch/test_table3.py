"""The rows of table 3: which commands are started or skipped, and which results are written."""

import json
import pathlib
import shlex

import pytest
from absl import flags
from ml_collections import config_flags

from launch import table3
from transformer.config import Config
from transformer.errors import UserError

ROWS = [
  'base',
  'A1',
  'A2',
  'A3',
  'A4',
  'B1',
  'B2',
  'C1',
  'C2',
  'C3',
  'C4',
  'C5',
  'C6',
  'C7',
  'D1',
  'D2',
  'D3',
  'D4',
  'E',
  'big',
]
SHAPE = (
  'num_layers',
  'model_dim',
  'ff_dim',
  'num_heads',
  'head_key_dim',
  'head_value_dim',
  'dropout',
  'positions',
)


@pytest.fixture(scope='module')
def launch(start_command):
  yield from start_command('launch.table3')


def settings_of(arguments):
  """Returns the settings and the directory that train.py would read from a command line."""
  values = flags.FlagValues()
  config_flags.DEFINE_config_file(
    'config', None, '', flag_values=values, sys_argv=arguments
  )
  flags.DEFINE_string('workdir', None, '', flag_values=values)
  values(arguments)
  return Config.from_dict(values.config.to_dict()), pathlib.Path(values.workdir)


@pytest.mark.parametrize(('scale', 'layers'), [(1, 6), (4, 3)])
def test_every_row_is_the_papers_on_the_data_that_is_given(
  launch, tmp_path, monkeypatch, scale, layers
):
  monkeypatch.chdir(table3.ROOT)
  status, out, err = launch(
    '--config=configs/text.py',
    f'--workdir={tmp_path}/sweep',
    '--dry_run',
    f'--width_divisor={scale}',
    f'--layers={layers}',
    '--config.train.steps=700',
    "--config.data.train=('x', 'y')",
    '--config.data.dir=a b',
    '--config.model.dtype=bfloat16',
  )
  assert status == 0, err
  lines = [shlex.split(line) for line in out.splitlines()]
  assert [line[1].rpartition('/')[2] for line in lines] == [
    'train.py',
    'eval.py',
  ] * len(ROWS)
  for row, train, evaluate in zip(ROWS, lines[::2], lines[1::2], strict=True):
    settings, workdir = settings_of(train[1:])
    paper = settings_of(['', f'--config=configs/table3.py:{row}', '--workdir=x'])[0]
    for name in SHAPE:
      wanted = getattr(paper.model, name)
      if name.endswith('_dim'):
        wanted //= scale
      elif name == 'num_layers':
        wanted = {6: wanted, 3: wanted / 2}[layers]
      assert getattr(settings.model, name) == wanted, (row, name)
    assert settings.train.label_smoothing == paper.train.label_smoothing
    assert settings.train.steps * 100_000 == 700 * paper.train.steps
    assert (settings.data.train, settings.data.dir) == (('x', 'y'), 'a b')
    assert (settings.model.norm_position, settings.model.dtype) == ('pre', 'bfloat16')
    assert workdir == tmp_path / 'sweep' / row
    assert evaluate[2:] == [
      f'--workdir={workdir}',
      '--split=valid',
      '--checkpoint=latest',
    ]
  assert not (tmp_path / 'sweep').exists()


@pytest.mark.parametrize(
  ('arguments', 'facts'),
  [
    (
      ['--rows=base,A5,F'],
      ['--rows must name rows of table 3, out of base,A1,', "got 'A5,F'"],
    ),
    (['--width_divisor=0'], ['--width_divisor must be at least 1; got 0']),
    (
      ['--rows=base,C1', '--layers=2'],
      ['a multiple of 3 for row C1, which has 2 layers'],
    ),
    (
      ['--width_divisor=3'],
      [
        '--width_divisor must divide',
        'model_dim of row base is 512',
        '--width_divisor=3',
      ],
    ),
    (
      ['--config.model.dropout=0.3'],
      ['rows of table 3 set config.model.dropout themselves'],
    ),
    (
      ['--config.train.tokens_per_batch=100'],
      ['row base is incompatible with this config: ', 'tokens_per_batch=100', '--rows'],
    ),
    (
      ['--config.model.attention=cudnn', '--config.model.dtype=bfloat16'],
      ['row A1 is incompatible with this config: model.attention=cudnn', 'key_dim=512'],
    ),
    (['--config.model.decoder_layers=2'], ['remove config.model.decoder_layers=2']),
    (['--workdir='], ['--workdir= is empty']),
  ],
)
def test_user_error_is_a_one_line_message_before_anything_is_started(
  launch, folder, tmp_path, arguments, facts
):
  # --dry_run, so that an undetected error does not train twenty rows.
  message = launch.rejects(
    f'--config={folder}/tiny.py', f'--workdir={tmp_path}/sweep', '--dry_run', *arguments
  )
  for fact in facts:
    assert fact in message, message
  assert not (tmp_path / 'sweep').exists()


@pytest.fixture
def start(train, evaluate):
  """Runs the commands of the rows, and keeps them in `seen`."""

  def run(command):
    run.seen.append(command)
    script = {'train.py': train, 'eval.py': evaluate}[pathlib.Path(command[1]).name]
    status, _, err = script(*command[2:])
    assert status == 0, err
    return status

  run.seen = []
  return run


def tiny_row(folder, name, **differs):
  """Returns a row with the shape of the tiny run."""
  changes = [f'--config.{key}={value}' for key, value in differs.items()]
  settings, _ = settings_of(['', f'--config={folder}/tiny.py', '--workdir=x', *changes])
  return table3.Row(name, differs, 64, differs, settings)


@pytest.mark.long
def test_rows_are_trained_and_scored_once_with_the_numbers_of_their_runs(
  folder, start, tmp_path
):
  def sweep(*rows):
    start.seen.clear()
    table3.run_rows(rows, f'{folder}/tiny.py', tmp_path, start)
    return [pathlib.Path(command[1]).name for command in start.seen]

  base = tiny_row(folder, 'base')
  # Nothing new to be compiled.
  other = tiny_row(folder, 'D4', **{'train.log_every': 7})
  assert sweep(other) == ['train.py', 'eval.py']
  assert sweep(base, other) == ['train.py', 'eval.py']
  written = (tmp_path / 'table3.json').read_text('utf-8')
  assert sweep(other, base) == []
  assert (tmp_path / 'table3.json').read_text('utf-8') == written

  results = json.loads(written)
  assert list(results) == ['base', 'D4']  # in the paper's order
  table = (tmp_path / 'table3.md').read_text('utf-8').splitlines()
  for name, row, line in zip(results, results.values(), table[-2:], strict=True):
    run = tmp_path / name
    about = json.loads((run / 'run.json').read_text('utf-8'))
    metrics = [*map(json.loads, (run / 'metrics.jsonl').read_text().splitlines())]
    (score,) = (
      json.loads(path.read_text('utf-8')) for path in (run / 'eval').glob('*.json')
    )
    assert (score['text'], score['steps'], score['decode']['beam_size']) == (
      'valid',
      [2],
      4,
    )
    assert (row['steps'], row['bleu']) == (2, score['bleu'])
    assert (
      row['perplexity'] == metrics[-1]['valid/perplexity'] and metrics[-1]['step'] == 2
    )
    assert (row['parameters'], row['commit']) == (about['parameters'], about['commit'])
    assert row['data'] == {
      'name': str(folder),
      'train': ['train'],
      'valid': 'valid',
      'languages': ['en', 'de'],
      'fingerprints': about['data'],
    }
    for fact in (
      f'| {name} ',
      ' 1/64 ',
      f' {row["perplexity"]:.2f} ',
      f' {row["bleu"]:.2f} ',
      f' {about["parameters"]:,} ',
      about['data']['valid'][:8],
      str(folder),
    ):
      assert fact in line
  assert (
    ' 4.92 | ' in table[-2] and ' 65 | ' in table[-2] and ' log_every 7 ' in table[-1]
  )

  # With more steps, the run is resumed.
  assert sweep(tiny_row(folder, 'D4', **{'train.log_every': 7, 'train.steps': 3})) == [
    'train.py',
    'eval.py',
  ]
  results = json.loads((tmp_path / 'table3.json').read_text('utf-8'))
  assert (results['base']['steps'], results['D4']['steps']) == (2, 3)
  about = json.loads((tmp_path / 'D4' / 'run.json').read_text('utf-8'))
  assert len(about['resumed']) == 1


def test_a_damaged_table_and_a_command_that_fails_are_named(folder, start, tmp_path):
  (tmp_path / 'table3.json').write_text('{')
  with pytest.raises(UserError, match=r'table3.json, .* is damaged; remove it'):
    table3.run_rows([tiny_row(folder, 'base')], 'tiny.py', tmp_path, start)
  assert start.seen == []
  (tmp_path / 'table3.json').unlink()
  with pytest.raises(UserError, match=r'row base: train\.py ended with status 7'):
    table3.run_rows([tiny_row(folder, 'base')], 'tiny.py', tmp_path, lambda _: 7)
