"""The work of each of several processes; tests/cli runs several processes together."""

import hashlib
import os
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from transformer.errors import UserError
from transformer.system import processes
from transformer.training.config import MeshConfig
from transformer.training.mesh import make_mesh

LOCAL, TASKS, ON_NODE, VISIBLE = (
  'SLURM_LOCALID',
  'SLURM_STEP_TASKS_PER_NODE',
  'SLURM_GPUS_ON_NODE',
  'CUDA_VISIBLE_DEVICES',
)


@pytest.mark.parametrize(
  ('variables', 'places'),
  [
    ({LOCAL: '1', TASKS: '2(x3)'}, None),
    ({VISIBLE: '0,1'}, None),
    ({LOCAL: '0', TASKS: '1', VISIBLE: '-1'}, None),
    # All tasks see all GPUs of the node, and divide them.
    ({LOCAL: '1', TASKS: '2(x3)', ON_NODE: '4', VISIBLE: '4,5,6,7'}, [2, 3]),
    ({LOCAL: '7', TASKS: '8', VISIBLE: '0,1,2,3,4,5,6,7'}, [7]),
    # launch/local.py, or Slurm itself, has divided the GPUs of a job.
    ({LOCAL: '0', 'JAX_NUM_PROCESSES': '2', VISIBLE: '2,3'}, [0, 1]),
    ({LOCAL: '1', TASKS: '2', ON_NODE: '4', VISIBLE: '0,1'}, [0, 1]),
  ],
)
def test_tasks_divide_the_gpus_of_a_node_unless_slurm_has_divided_them(
  variables, places
):
  assert processes.slurm_gpus(variables) == places


@pytest.mark.parametrize(
  ('variables', 'fact'),
  [
    (
      {TASKS: '2', ON_NODE: '3', VISIBLE: '0,1,2'},
      'the 3 GPUs of a node must be divided evenly',
    ),
    ({ON_NODE: '2', VISIBLE: '0,1'}, 'put srun before the command'),
  ],
)
def test_tasks_that_cannot_divide_the_gpus_are_rejected(variables, fact):
  with pytest.raises(UserError, match=fact):
    processes.slurm_gpus({LOCAL: '0', **variables})


def test_a_process_without_the_other_processes_ends_in_one_line():
  code = (
    'from transformer.system import processes; '
    'processes._JOIN_SECONDS = 1; processes.initialize()'
  )
  with socket.socket() as free:
    free.bind(('localhost', 0))
    port = free.getsockname()[1]
  done = subprocess.run(
    [sys.executable, '-c', code],
    check=False,
    capture_output=True,
    text=True,
    timeout=120,
    env=os.environ
    | {
      'JAX_NUM_PROCESSES': '2',
      'JAX_PROCESS_ID': '1',
      'JAX_PLATFORMS': 'cpu',
      'JAX_COORDINATOR_ADDRESS': f'localhost:{port}',
    },
  )
  assert done.returncode == 1 and done.stderr.splitlines()[-1] == (
    'error: the other processes did not start within 1 seconds; read their output, then start all '
    'again'
  )


def test_processes_that_read_other_text_are_named(monkeypatch):
  processes.check_same_text(b'a')
  monkeypatch.setattr(jax, 'process_count', lambda: 4)

  def gathered(*contents):
    def gather(digest):
      return np.stack(
        [
          np.frombuffer(hashlib.sha256(content).digest(), np.uint8)
          for content in contents
        ]
      )

    monkeypatch.setattr(processes.multihost_utils, 'process_allgather', gather)

  gathered(b'a', b'a', b'a', b'a')
  processes.check_same_text(b'a')
  gathered(b'a', b'b', b'a', b'c')
  with pytest.raises(UserError, match=r'same text; processes \[1, 3\] differ'):
    processes.check_same_text(b'b')


def test_processes_learn_of_a_request_to_stop_at_the_next_step(monkeypatch):
  mesh = make_mesh(MeshConfig(), rows=4)
  alone = processes.StopAgreement(mesh)
  assert [alone.should_stop(wish) for wish in (False, True, False)] == [
    False,
    True,
    False,
  ]
  monkeypatch.setattr(jax, 'process_count', lambda: 2)
  several = processes.StopAgreement(mesh)
  assert [several.should_stop(wish) for wish in (False, True, False, False)] == [
    False,
    False,
    True,
    False,
  ]
