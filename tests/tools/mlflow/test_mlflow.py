"""MLflow gets each line once, the samples and the settings; read by its own client."""

import math
import os
import subprocess
import sys

import pytest

from tests.command_fixtures import ROOT

TRACKED = """
import json, math, os, pathlib, shutil
from transformer import files
from transformer.config import Config
from transformer.errors import StoppedBySignal
from transformer.experiment.trackers import Sample, Trackers
from transformer.runs.run_directory import FORMAT
from transformer.tools.mlflow.tracker import MLflow, mlflow

def track(step, steps, error, *lines, workdir='runs/a'):
  # A setting that is longer than a parameter may be.
  config = Config.from_dict({'train': {'steps': steps}, 'data': {'dir': 9999 * 'x'}})
  trackers = Trackers({'mlflow': MLflow}, (config, pathlib.Path(workdir), step), 90)
  for step, values in lines:
    trackers.notify('log_samples' if isinstance(values, list) else 'log_metrics', step, values)
  trackers.close(error)
  run_id = json.loads(pathlib.Path(workdir, 'mlflow.json').read_text())['run']
  return mlflow.get_run(run_id)

loss, bleu = 'train/loss', 'valid/new-set+1/bleu'
os.makedirs('runs/a')
files.write_sealed('runs/a/run.json', {'format': FORMAT, 'started': 'then'})
run = track(0, 40, StoppedBySignal(), (10, {loss: 3.5, 'spikes': 0}), (20, {loss: math.nan}),
           (20, {bleu: 7.0}), (20, [Sample('a | b', 'ü', '')]), (30, {loss: math.inf}))
print(run.info.status)
run = track(20, 50, None, (30, {loss: 9.0}), (40, {loss: 2.5, bleu: 8.0}),
           (20, [Sample('a | b', 'ü', '')]))
print(run.info.status, run.info.run_name, run.data.params['train.steps'],
      {name: value for name, value in run.data.tags.items() if name.startswith('resumed/')})
client = mlflow.MlflowClient()
print({name: [(value.step, value.value)
              for value in client.get_metric_history(run.info.run_id, name)]
       for name in sorted(run.data.metrics)})
print([file.path for file in client.list_artifacts(run.info.run_id, 'samples')],
      mlflow.artifacts.load_dict(f'{run.info.artifact_uri}/samples/20.json'))
shutil.copytree('runs/a', 'runs/b')
copy = track(40, 50, None, (50, {loss: 2.0}), workdir='runs/b')
print(copy.info.run_id == run.info.run_id, copy.info.run_name, copy.data.metrics)
"""


def tell(folder, before=''):
  return subprocess.run(
    [sys.executable, '-c', before + TRACKED],
    cwd=folder,
    capture_output=True,
    text=True,
    check=False,
    env={'PATH': os.environ['PATH'], 'PYTHONPATH': str(ROOT), 'HOME': str(folder)},
  )


@pytest.mark.long
def test_lines_are_sent_once_with_their_steps_and_a_run_resumes(tmp_path):
  done = tell(tmp_path)
  assert done.returncode == 0 and 'receives no more entries' not in done.stderr, (
    done.stderr
  )
  assert done.stdout.splitlines() == [
    'KILLED',
    "FINISHED runs/a 40 {'resumed/train.steps': '50'}",
    str(
      {
        'spikes': [(10, 0.0)],
        'train/loss': [(10, 3.5), (20, math.nan), (30, sys.float_info.max), (40, 2.5)],
        'valid/new-set_1/bleu': [(20, 7.0), (40, 8.0)],
      }
    ),
    str(['samples/20.json'])
    + ' '
    + str([{'source': 'a | b', 'reference': 'ü', 'translation': ''}]),
    "False runs/b {'train/loss': 2.0}",
  ]


def test_without_the_library_there_is_an_error_before_training(tmp_path):
  done = tell(tmp_path, 'import sys; sys.modules["mlflow"] = None\n')
  error = done.stderr.splitlines()[-1]
  assert done.returncode == 1 and 'UserError' in error and 'pip install -r' in error
