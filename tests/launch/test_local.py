"""Each of several processes on this machine has separate GPUs, and finds the others."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launch import gpus

ROOT = Path(__file__).parents[2]
# In a separate process, since other commands define the same flags.
CODE = """
import json
from launch.local import environments
from transformer.errors import UserError
made = [environments(2, 3, ['0', '1', 'GPU-ab', '3']), environments(2, 3, [])]
try:
  environments(2, 3, ['0', '1', '2'])
except UserError as error:
  print(json.dumps([*made, str(error)]))
"""


def test_the_gpus_of_a_machine_are_split_evenly():
  done = subprocess.run(
    [sys.executable, '-c', CODE], cwd=ROOT, text=True, capture_output=True, check=True
  )
  with_gpus, without, error = json.loads(done.stdout)
  assert [own.pop('CUDA_VISIBLE_DEVICES') for own in with_gpus] == ['0,1', 'GPU-ab,3']
  assert '--processes must divide the 3 GPUs; got 2' in error
  for variables in (with_gpus, without):
    address = variables[0]['JAX_COORDINATOR_ADDRESS']
    assert variables == [
      {
        'JAX_COORDINATOR_ADDRESS': address,
        'JAX_NUM_PROCESSES': '2',
        'JAX_PROCESS_ID': number,
        'JAX_NUM_CPU_DEVICES': '3',
      }
      for number in '01'
    ]


@pytest.mark.parametrize(
  ('environment', 'wanted'),
  [
    ({}, ['0', '1']),
    ({'JAX_PLATFORMS': 'cpu'}, []),
    ({'CUDA_VISIBLE_DEVICES': '1'}, ['1']),
    ({'CUDA_VISIBLE_DEVICES': ''}, []),
    ({'CUDA_VISIBLE_DEVICES': '-1'}, []),
    ({'CUDA_VISIBLE_DEVICES': 'GPU-ab, 3,-1,2'}, ['GPU-ab', '3']),
  ],
)
def test_the_gpus_of_a_process_are_those_that_cuda_would_take(
  tmp_path, monkeypatch, environment, wanted
):
  for name in ('0000:1a:00.0', '0000:1b:00.0'):
    (tmp_path / name).mkdir()
  monkeypatch.setattr(gpus, '_GPUS', tmp_path)
  assert gpus.visible_gpus(environment) == wanted
  monkeypatch.setattr(gpus, '_GPUS', tmp_path / 'none')
  assert gpus.visible_gpus({}) == []
