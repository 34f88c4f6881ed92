"""Several processes, over localhost or Slurm's, take the steps of one, and stop and go on."""

import json
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

from launch import sbatch
from tests.commands import slurm_node
from transformer.errors import UserError
from transformer.training.lock import RunLock
from transformer.training.meter import WALL_CLOCK
from transformer.training.patience import best_evaluation
from transformer.training.preemption import EXIT_STATUS

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
STEPS = 40
SETTINGS = {'steps': STEPS, 'eval_every': 10, 'checkpoint_every': 4, 'log_every': 5, 'keep': 3,
            'tokens_per_batch': 256, 'ema_decay': 0.9}


def flags(folder, workdir, **mesh):
  return [f'--config={folder}/tiny.py', f'--workdir={workdir}',
          '--config.optimizer.schedule=constant', '--config.optimizer.peak_learning_rate=0.003',
          *(f'--config.train.{name}={value}' for name, value in SETTINGS.items()),
          *(f'--config.mesh.{name}={value}' for name, value in mesh.items())]


def start(command, log, devices=1):
  with log.open('wb') as file:
    return subprocess.Popen([sys.executable, *command], cwd=ROOT, stderr=file, env={
        **os.environ, 'JAX_PLATFORMS': 'cpu', 'JAX_NUM_CPU_DEVICES': str(devices)})


def rows_of(workdir):
  return [{name: value for name, value in json.loads(line).items() if name not in WALL_CLOCK}
          for line in (workdir / 'metrics.jsonl').read_text('utf-8').splitlines()]


def wait_for_step(workdir, step, process):
  """Waits until a checkpoint after `step` is there; returns its step."""
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
  """A run of one process with two devices."""
  workdir = tmp_path_factory.mktemp('whole') / 'run'
  log = workdir.with_name('log')
  assert start(['train.py', *flags(folder, workdir)], log, devices=2).wait(300) == 0, (
      log.read_text())
  return workdir


def assert_same_run(workdir, whole):
  wanted, found = rows_of(whole), rows_of(workdir)
  assert [list(row) for row in found] == [list(row) for row in wanted]
  for row, other in zip(found, wanted, strict=True):
    np.testing.assert_allclose(list(row.values()), list(other.values()), rtol=1e-4)
  assert ([path.name for path in sorted((workdir / 'checkpoints').iterdir())]
          == [path.name for path in sorted((whole / 'checkpoints').iterdir())])
  assert not (workdir / 'interrupted').exists() and not (workdir / 'lock.json').exists()


def test_processes_take_the_steps_of_one_and_stop_and_go_on_together(folder, whole, tmp_path):
  """Asked to stop, the first killed, the other unable to write, and at last one alone."""
  parts, log = tmp_path / 'parts', tmp_path / 'log'
  local = ['launch/local.py', '--processes=2', '--', *flags(folder, parts, fsdp=2, data=1)]
  process = start(local, log)
  wait_for_step(parts, 0, process)
  with pytest.raises(UserError, match=f'{parts} is in use by process'), RunLock(parts):
    pass  # All of them hold the one lock.
  os.kill(children_of(process)[1], signal.SIGTERM)  # The first hears of it from the other.
  assert process.wait(120) == EXIT_STATUS, log.read_text()
  said = log.read_text()
  stopped_at, = re.findall(r'stopped by another process after step (\d+), which is saved', said)
  stopped_at = int(stopped_at)
  assert 'Traceback' not in said and any(parts.glob(f'*/{stopped_at}')), said

  process = start(local, log)
  last = wait_for_step(parts, stopped_at, process)
  os.kill(children_of(process)[0], signal.SIGKILL)
  killed = time.monotonic()
  assert process.wait(120) == 1 and time.monotonic() - killed < 60
  assert log.read_text().splitlines()[-1] == (
      'error: process 0 of 2 was killed by SIGKILL, so all were stopped; the same command goes on '
      'from the last checkpoint')

  process = start(local, log)
  wait_for_step(parts, last, process)
  resource.prlimit(children_of(process)[1], resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
  limited = time.monotonic()
  assert process.wait(120) == 1 and time.monotonic() - limited < 60
  said = log.read_text()
  assert re.search(r'error: the checkpoint of step \d+ cannot be written .*: File too large', said)
  assert 'process 1 of 2 ended with status 1, so all were stopped' in said.splitlines()[-1]

  process = start(['train.py', *flags(folder, parts)], log)
  assert process.wait(300) == 0, log.read_text()
  assert_same_run(parts, whole)


def test_a_run_of_another_is_refused_in_one_line_by_all_together(folder, one_error, tmp_path):
  workdir = tmp_path / 'run'
  with RunLock(workdir):
    refused = subprocess.run(
        [sys.executable, 'launch/local.py', '--processes=2', '--', *flags(folder, workdir)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
  assert refused.returncode == 1
  assert f'{workdir} is in use by process {os.getpid()}' in one_error(refused.stderr)


def test_processes_begin_from_another_runs_parameters(folder, whole, tmp_path):
  workdir, log = tmp_path / 'run', tmp_path / 'log'
  process = start(['launch/local.py', '--processes=2', '--', *flags(folder, workdir),
                   f'--config.train.init_from={whole}', '--config.train.steps=1',
                   '--config.optimizer.peak_learning_rate=1e-30'], log)
  assert process.wait(300) == 0, log.read_text()
  best = best_evaluation([row for row in rows_of(whole) if 'valid/bleu' in row])
  found = [row['valid/loss'] for row in rows_of(workdir) if 'valid/loss' in row]
  assert found == pytest.approx([best['valid/loss']], rel=1e-6)


@pytest.fixture(scope='module')
def launch(start_command):
  yield from start_command('launch.local', takes_arguments=True)


@pytest.mark.parametrize(('arguments', 'fact'), [
    (['--processes=0', '--', '--workdir=x'], '--processes must be at least 1; got 0'),
    (['--devices=-1', '--', '--workdir=x'], '--devices must be at least 1; got -1'),
    (['--processes=2'], 'what train.py is to be given must stand after --'),
    (['--', '--config.train.step=3'], 'did you mean config.train.steps?')])
def test_a_mistake_is_one_line(launch, arguments, fact):
  assert fact in launch.refuses(*arguments)


@pytest.mark.skipif(not slurm_node.is_installed(), reason='needs root, slurm-wlm and munge')
def test_slurm_runs_it_and_queues_it_again_when_its_time_is_up_or_it_gives_way(
    folder, whole, tmp_path):
  """A run gets the warning before its time limit; a smaller job gives way, and is cancelled."""
  workdir = tmp_path / 'run'
  with tempfile.TemporaryDirectory() as name, slurm_node.slurm_node(Path(name)) as environment:
    def slurm(*command, script=None):
      done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True,
                            input=script, timeout=60, check=False)
      assert done.returncode == 0, (command, done.stderr)
      return done.stdout

    def state():
      return slurm('squeue', '--noheader', '--format=%T', '--states=all', f'--jobs={job}').strip()

    def wait_for(wanted):
      deadline = time.monotonic() + 240
      while not wanted():
        assert time.monotonic() < deadline and state() != 'FAILED', output.read_text()
        time.sleep(0.1)

    def is_queued_again(*stop):
      slurm(*stop)
      wait_for(lambda: state() == 'PENDING')
      slurm('scontrol', 'update', f'jobid={job}', 'StartTime=now')  # Slurm waits two minutes.

    told = slurm(sys.executable, str(ROOT / 'launch' / 'slurm.py'), '--tasks-per-node=2',
                 '--sbatch=--output=out', '--', *flags(folder, workdir, fsdp=2, data=1))
    assert told == ''
    job, output = 1, tmp_path / 'out'
    wait_for(lambda: any(path.name.isdecimal() for path in workdir.glob('checkpoints/*')))
    is_queued_again('scancel', '--signal=USR1', str(job))
    wait_for(lambda: state() in ('COMPLETED', 'FAILED', 'CANCELLED'))
    said = output.read_text()
    assert state() == 'COMPLETED' and 'Traceback' not in said, said
    assert 'stopped by SIGUSR1 after step' in said, said
    assert 'Restarts=1' in slurm('scontrol', 'show', 'job', str(job))
    # A job that takes no time to start, and is told to stop as a run is. One that gives way to
    # another is queued again; of one that is cancelled, no more is wanted.
    script = sbatch.script('bash -c "trap \'exit 75\' TERM; echo up; sleep 60 & wait"', 'none')
    slurm('sbatch', '--requeue', '--output=out', '--open-mode=truncate', script=script)
    output.unlink()
    job = 2
    wait_for(lambda: output.exists() and 'up' in output.read_text())
    is_queued_again('sbatch', '--partition=high', '--ntasks=8', '--output=/dev/null',
                    '--wrap=sleep 1')
    output.unlink()
    wait_for(lambda: output.exists() and 'up' in output.read_text())
    slurm('scancel', str(job))
    wait_for(lambda: state() not in ('RUNNING', 'COMPLETING'))
    assert state() == 'CANCELLED'
  assert_same_run(workdir, whole)


def test_a_process_that_is_told_of_no_others_says_so(train, folder, tmp_path):
  message = train.refuses(f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run',
                          '--distributed')
  assert '--distributed needs to be told which processes there are' in message
  assert 'launch/local.py' in message and not (tmp_path / 'run').exists()
