"""Several processes, started by launch/local.py or Slurm, make the same run as one process."""

import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from tests.experiment.tiny_runs import rows_of
from tests.launch import slurm_node
from transformer.errors import UserError
from transformer.runs.evaluations import best_evaluation
from transformer.runs.lock import run_lock
from transformer.system.signals import EXIT_STATUS

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
STEPS = 40
SETTINGS = {
  'steps': STEPS,
  'eval_every': 10,
  'checkpoint_every': 4,
  'log_every': 5,
  'keep': 3,
  'tokens_per_batch': 256,
  'ema_decay': 0.9,
}


def flags(folder, workdir, **mesh):
  return [
    f'--config={folder}/tiny.py',
    f'--workdir={workdir}',
    '--config.optimizer.schedule=constant',
    '--config.optimizer.peak_learning_rate=0.003',
    *(f'--config.train.{name}={value}' for name, value in SETTINGS.items()),
    *(f'--config.mesh.{name}={value}' for name, value in mesh.items()),
  ]


def start(command, log, devices=1):
  with log.open('wb') as file:
    return subprocess.Popen(
      [sys.executable, *command],
      cwd=ROOT,
      stderr=file,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'JAX_NUM_CPU_DEVICES': str(devices)},
    )


def wait_for_step(workdir, step, process):
  """Waits for a checkpoint after `step`, and returns its step."""
  deadline = time.monotonic() + 240
  while time.monotonic() < deadline and process.poll() is None:
    folder = workdir / 'checkpoints'
    steps = [int(path.name) for path in folder.glob('*') if path.name.isdecimal()]
    if max(steps, default=0) > step:
      return max(steps)
    time.sleep(0.02)
  raise AssertionError(f'{workdir} has no checkpoint after step {step}')


def children_of(process):
  text = Path(f'/proc/{process.pid}/task/{process.pid}/children').read_text()
  return [int(number) for number in text.split()]


@pytest.fixture(scope='module')
def whole(folder, tmp_path_factory):
  """Returns the directory of a run of one process with two devices."""
  workdir = tmp_path_factory.mktemp('whole') / 'run'
  log = workdir.with_name('log')
  assert start(['train.py', *flags(folder, workdir)], log, devices=2).wait(300) == 0, (
    log.read_text()
  )
  return workdir


@pytest.fixture(scope='module')
def launch(start_command):
  yield from start_command('launch.local', takes_arguments=True)


def assert_same_run(workdir, whole):
  for row, other in zip(rows_of(workdir), rows_of(whole), strict=True):
    assert list(row) == list(other)
    np.testing.assert_allclose(list(row.values()), list(other.values()), rtol=1e-4)
  assert [path.name for path in sorted((workdir / 'checkpoints').iterdir())] == [
    path.name for path in sorted((whole / 'checkpoints').iterdir())
  ]
  assert not (workdir / 'lock.json').exists()


def test_several_processes_make_the_run_of_one_and_stop_together(
  folder, whole, tmp_path
):
  """Stopped; then the first killed; then the other cannot write; then only one process."""
  parts, log = tmp_path / 'parts', tmp_path / 'log'
  local = [
    'launch/local.py',
    '--processes=2',
    '--',
    *flags(folder, parts, fsdp=2, data=1),
  ]
  process = start(local, log)
  wait_for_step(parts, 0, process)
  with pytest.raises(UserError, match=f'{parts} is in use by process'), run_lock(parts):
    pass  # There is one lock for both processes.
  os.kill(children_of(process)[1], signal.SIGTERM)  # The first process learns of it.
  assert process.wait(120) == EXIT_STATUS, log.read_text()
  said = log.read_text()
  (stopped_at,) = re.findall(
    r'stopped by another process after step (\d+) \(saved\)', said
  )
  stopped_at = int(stopped_at)
  assert 'Traceback' not in said and any(parts.glob(f'*/{stopped_at}')), said

  process = start(local, log)
  last = wait_for_step(parts, stopped_at, process)
  os.kill(children_of(process)[0], signal.SIGKILL)
  killed = time.monotonic()
  assert process.wait(120) == 1 and time.monotonic() - killed < 60
  assert log.read_text().splitlines()[-1] == (
    'error: process 0 of 2 was killed by SIGKILL, so all were stopped; rerun the command '
    'to resume from the last checkpoint'
  )

  last = max(
    int(path.name) for path in parts.glob('checkpoints/*') if path.name.isdecimal()
  )
  process = start(local, log)
  wait_for_step(parts, last, process)
  resource.prlimit(
    children_of(process)[1], resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY)
  )
  limited = time.monotonic()
  assert process.wait(120) == 1 and time.monotonic() - limited < 60
  said = log.read_text()
  assert re.search(r'error: cannot write a checkpoint.*File too large', said)
  assert (
    'process 1 of 2 ended with status 1, so all were stopped' in said.splitlines()[-1]
  )

  process = start(['train.py', *flags(folder, parts)], log)
  assert process.wait(300) == 0, log.read_text()
  assert_same_run(parts, whole)


def test_processes_reject_a_locked_run_in_one_line(launch, folder, tmp_path):
  workdir = tmp_path / 'run'
  with run_lock(workdir):
    rejected = launch.rejects('--processes=2', '--', *flags(folder, workdir))
  assert f'{workdir} is in use by process {os.getpid()}' in rejected


def test_processes_start_from_another_runs_parameters(folder, whole, tmp_path):
  workdir, log = tmp_path / 'run', tmp_path / 'log'
  local = [
    'launch/local.py',
    '--processes=2',
    '--',
    *flags(folder, workdir),
    '--config.train.steps=1',
    '--config.optimizer.peak_learning_rate=1e-30',
  ]
  (tmp_path / 'moved').symlink_to(whole)
  for origin in (whole, tmp_path / 'moved'):
    process = start([*local, f'--config.train.init_from={origin}'], log)
    assert process.wait(300) == 0, log.read_text()
  best = best_evaluation([row for row in rows_of(whole) if 'valid/bleu' in row])
  losses = [row['valid/loss'] for row in rows_of(workdir) if 'valid/loss' in row]
  assert losses == pytest.approx([best['valid/loss']], rel=1e-6)


@pytest.mark.parametrize(
  ('arguments', 'fact'),
  [
    (['--processes=0', '--', '--workdir=x'], '--processes must be at least 1; got 0'),
    (
      ['--cpu_devices=-1', '--', '--workdir=x'],
      '--cpu_devices must be at least 1; got -1',
    ),
    (['--processes=2'], 'the arguments of train.py must follow --'),
    (['--', '--config.train.step=3'], 'did you mean config.train.steps?'),
  ],
)
def test_user_error_is_a_one_line_message(launch, arguments, fact):
  assert fact in launch.rejects(*arguments)


@pytest.mark.skipif(
  not slurm_node.is_installed(), reason='needs root, slurm-wlm and munge'
)
def test_slurm_queues_a_run_again_after_its_time_limit(folder, whole, tmp_path):
  workdir = tmp_path / 'run'
  with (
    tempfile.TemporaryDirectory() as name,
    slurm_node.slurm_node(Path(name)) as environment,
  ):

    def slurm(*command):
      done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
      )
      assert done.returncode == 0, (command, done.stderr)
      return done.stdout

    def state():
      return slurm(
        'squeue', '--noheader', '--format=%T', '--states=all', f'--jobs={job}'
      ).strip()

    def wait_for(wanted):
      deadline = time.monotonic() + 240
      while not wanted():
        assert time.monotonic() < deadline and state() != 'FAILED', output.read_text()
        time.sleep(0.1)

    printed = slurm(
      sys.executable,
      str(ROOT / 'launch' / 'slurm.py'),
      '--tasks-per-node=2',
      '--sbatch=--output=out',
      '--',
      *flags(folder, workdir, fsdp=2, data=1),
    )
    assert printed == ''
    job, output = '1', tmp_path / 'out'
    wait_for(
      lambda: any(path.name.isdecimal() for path in workdir.glob('checkpoints/*'))
    )
    slurm('scancel', '--signal=USR1', job)
    wait_for(lambda: state() == 'PENDING')
    # Slurm waits two minutes.
    slurm('scontrol', 'update', f'jobid={job}', 'StartTime=now')
    wait_for(lambda: state() in ('COMPLETED', 'FAILED', 'CANCELLED'))
    said = output.read_text()
    assert state() == 'COMPLETED' and 'Traceback' not in said, said
    assert 'stopped by SIGUSR1 after step' in said, said
    assert 'Restarts=1' in slurm('scontrol', 'show', 'job', job)
  assert_same_run(workdir, whole)


def test_distributed_without_other_processes_is_rejected(train, folder, tmp_path):
  message = train.rejects(
    f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run', '--distributed'
  )
  assert '--distributed could not find the number of processes' in message
  assert 'launch/local.py' in message and not (tmp_path / 'run').exists()
