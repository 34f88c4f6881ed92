"""Weights & Biases gets each line once, the samples and the settings; read from its own files."""

import json
import math
import struct
import subprocess
import sys

import pytest

from tests.command_fixtures import ROOT

TRACKED = """
import math, os, pathlib, shutil
from transformer import files
from transformer.config import Config
from transformer.errors import StoppedBySignal
from transformer.experiment.trackers import Sample, Trackers
from transformer.runs.run_directory import FORMAT
from transformer.tools.wandb.tracker import WandB

def track(step, steps, error, *lines, workdir='runs/a'):
  config = Config.from_dict({'train': {'steps': steps}})
  trackers = Trackers({'wandb': WandB}, (config, pathlib.Path(workdir), step), 60)
  for step, values in lines:
    trackers.notify('log_samples' if isinstance(values, list) else 'log_metrics', step, values)
  trackers.close(error)

loss, bleu = 'train/loss', 'valid/bleu'
os.makedirs('runs/a')
files.write_sealed('runs/a/run.json', {'format': FORMAT, 'started': 'then'})
track(0, 40, StoppedBySignal(), (10, {loss: 3.5, 'spikes': 0}), (20, {loss: math.nan}),
     (20, {bleu: 7.0}), (20, [Sample('a | b', 'ü', '')]), (30, {loss: math.inf}))
track(20, 50, None, (30, {loss: 9.0}), (40, {loss: 2.5, bleu: 8.0}), (40, [Sample('a', 'b', 'c')]))
shutil.copytree('runs/a', 'runs/b', ignore=shutil.ignore_patterns('wandb'))
track(40, 50, None, (50, {loss: 2.0}), workdir='runs/b')
"""


def records(path):
  """Yields the records of a run's file, which is a log as LevelDB's: parts in blocks of 32 KiB."""
  from wandb.proto import wandb_internal_pb2

  content, place, whole = path.read_bytes(), 7, b''
  while place < len(content):
    if (room := 32768 - place % 32768) < 7:
      place += room
      continue
    length, part = struct.unpack('<HB', content[place + 4 : place + 7])
    whole += content[place + 7 : place + 7 + length]
    place += 7 + length
    if part in (1, 4):  # The whole of a record, or its end.
      yield wandb_internal_pb2.Record.FromString(whole)
      whole = b''


@pytest.fixture(scope='module')
def tell():
  def tell(folder, before, environment):
    return subprocess.run(
      [sys.executable, '-c', before + TRACKED],
      cwd=folder,
      capture_output=True,
      text=True,
      check=False,
      stdin=subprocess.DEVNULL,
      env={'PYTHONPATH': str(ROOT), 'HOME': str(folder), **environment},
    )

  return tell


@pytest.fixture(scope='module')
def folder(tmp_path_factory, tell):
  folder = tmp_path_factory.mktemp('wandb')
  done = tell(folder, '', {'WANDB_MODE': 'offline'})
  assert done.returncode == 0 and 'receives no more entries' not in done.stderr, (
    done.stderr
  )
  return folder / 'runs' / 'a'


@pytest.mark.long
def test_lines_are_sent_once_with_their_steps_and_a_run_resumes(folder):
  paths = sorted(folder.glob('wandb/offline-run-*/*.wandb'))
  parts = [list(records(path)) for path in paths]
  rows = [
    {
      item.nested_key[0]: json.loads(item.value_json)
      for item in sorted(record.history.item, key=lambda item: item.nested_key[0])
      if not item.nested_key[0].startswith('_')
    }
    for part in parts
    for record in part
    if record.HasField('history')
  ]
  tables = [row.pop('valid/samples') for row in rows if 'valid/samples' in row]
  assert str(rows) == str(
    [
      {'spikes': 0, 'step': 10, 'train/loss': 3.5},
      {'step': 20, 'train/loss': math.nan},
      {'step': 20, 'valid/bleu': 7},
      {'step': 20},
      {'step': 30, 'train/loss': math.inf},
      {'step': 40, 'train/loss': 2.5, 'valid/bleu': 8},
      {'step': 40},
    ]
  )
  assert len(tables) == 2
  texts = [
    json.loads(path.read_text('utf-8'))
    for path in folder.glob('wandb/offline-run-*/files/media/table/valid/*.json')
  ]
  assert sorted(text['data'] for text in texts) == [
    [['a', 'b', 'c']],
    [['a | b', 'ü', '']],
  ]

  runs = [[record.run for record in part if record.HasField('run')] for part in parts]
  assert len({run.run_id for part in runs for run in part}) == 1
  assert {run.display_name for part in runs for run in part} == {'runs/a'}
  steps = [
    json.loads(update.value_json)['steps']
    for first, *_ in runs
    for update in first.config.update
    if update.key == 'train'
  ]
  assert steps == [40, 50]
  assert [
    record.exit.exit_code
    for part in parts
    for record in part
    if record.HasField('exit')
  ] == [1, 0]
  assert [sum(record.HasField('preempting') for record in part) for part in parts] == [
    1,
    0,
  ]
  assert {
    record.metric.step_metric
    for part in parts
    for record in part
    if record.HasField('metric')
  } == {'step'}
  (copy,) = folder.parent.glob('b/wandb/offline-run-*/*.wandb')
  assert not {record.run.run_id for record in records(copy)} & {
    run.run_id for part in runs for run in part
  }


@pytest.mark.long(but=['no library'])
@pytest.mark.parametrize(
  ('before', 'environment', 'words'),
  [
    ('import sys; sys.modules["wandb"] = None\n', {}, 'pip install -r'),
    ('', {'WANDB_MODE': 'online'}, 'WANDB_MODE=offline'),
  ],
  ids=['no library', 'no key'],
)
def test_missing_requirements_are_an_error_before_training(
  tmp_path, tell, before, environment, words
):
  done = tell(tmp_path, before, environment)
  assert done.returncode == 1 and words in done.stderr.splitlines()[-1], done.stderr
  assert 'UserError' in done.stderr.splitlines()[-1]
