"""The jobs that launch/slurm.py submits, run by stand-ins for the programs of Slurm."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launch import sbatch
from transformer.errors import UserError

ROOT = Path(__file__).parents[2]
TRAIN = [
  '--config=configs/quickstart.py',
  '--workdir=/mnt/disk/a run',
  '--config.train.steps=700',
]


@pytest.fixture(scope='module')
def launch(start_command):
  yield from start_command('launch.slurm', takes_arguments=True)


def test_a_dry_run_prints_the_job(launch, tmp_path):
  train = ['--config=configs/quickstart.py', f'--workdir={tmp_path}/a run']
  status, out, err = launch(
    '--nodes=2',
    '--tasks_per_node=8',
    '--dry_run',
    '--sbatch=--gres=gpu:8 --comment="of mine"',
    '--',
    *train,
  )
  assert status == 0, err
  first, shell, *rest, last = out.splitlines()
  assert {
    '--nodes=2',
    '--ntasks-per-node=8',
    '--gres=gpu:8',
    '--comment=of mine',
    '--requeue',
    '--signal=USR1@120',
    '--open-mode=append',
  } <= set(shlex.split(first))
  assert first.endswith(" <<'END'") and (shell, last) == ('#!/bin/bash', 'END')
  srun = next(shlex.split(line) for line in rest if line.startswith('srun'))
  assert srun[:2] == ['srun', '--kill-on-bad-exit=0'] and srun[3:] == [
    sys.executable,
    str(ROOT / 'train.py'),
    '--distributed',
    *train,
    '--config.train.grace_seconds=100',
  ]


@pytest.fixture
def job(tmp_path):
  """(code of a task, of squeue, earlier restarts, name) -> a job's output, status and errors."""

  def run(step, squeue, restarts=0, name=sbatch.JOB):
    for program, line in (
      ('srun', f'echo "${{@:2}}"; {step}'),
      ('squeue', squeue),
      ('sleep', ''),
      ('scontrol', 'echo scontrol "$@"; [ -f asked ] || ! touch asked'),
    ):
      (tmp_path / program).write_text(f'#!/bin/bash\n{line}\n')
      (tmp_path / program).chmod(0o755)
    done = subprocess.run(
      ['bash'],
      input=sbatch.script('a b', 'run', name),
      text=True,
      check=False,
      cwd=tmp_path,
      capture_output=True,
      timeout=60,
      env={
        'PATH': f'{tmp_path}:{os.environ["PATH"]}',
        'SLURM_JOB_ID': '7',
        'SLURM_RESTART_COUNT': str(restarts),
        # A job that is submitted from a part of an array inherits these.
        'SLURM_ARRAY_JOB_ID': '5',
        'SLURM_ARRAY_TASK_ID': '3',
      },
    )
    return done.stdout.splitlines(), done.returncode, done.stderr

  return run


@pytest.mark.parametrize(
  ('step', 'state', 'again'),
  [
    ('exit 0', 'RUNNING 9:00', False),
    ('exit 1', 'RUNNING 9:00', False),
    ('exit 75', 'RUNNING UNLIMITED', True),
    ('exit 75', 'SIGNALING 1:00:00', True),
    ('exit 75', 'COMPLETING 9:00', False),  # The user has cancelled the job.
    # A slow task was killed, or was aborted because others had left.
    ('kill -TERM $PPID; exit 143', 'RUNNING 9:00', True),
    ('exit 134', 'RUNNING 1:58', True),
    ('exit 134', 'RUNNING 1:58:00', False),
    ('exit 1', 'RUNNING 1:58', False),
    ('kill -TERM $PPID; exit 1', 'RUNNING 9:00', False),
    ('exit 143', 'RUNNING 9:00', False),
  ],
)
def test_a_job_requeues_itself_if_its_command_was_stopped(job, step, state, again):
  said, status, _ = job(step, f'echo {state}')
  assert said == ['a b'] + ['scontrol requeue 7'] * 2 * again  # Slurm rejects once.
  assert (status == 0) == (again or step == 'exit 0')


def test_a_job_retries_if_slurm_does_not_answer(job):
  said, status, _ = job(
    'exit 75',
    '[ -f busy ] || ! touch busy && echo RUNNING 9:00',
    name=sbatch.PART_OF_ARRAY,
  )
  assert said == ['a b'] + ['scontrol requeue 5_3'] * 2 and status == 0


def test_a_job_without_progress_is_not_queued_again(job):
  late = 'echo RUNNING 1:58'
  saves = 'mkdir -p run/checkpoints/$RANDOM; exit 75'
  assert job('exit 75', late, restarts=2)[1] == 0
  assert job(saves, late, restarts=3)[1] == 0
  assert job('exit 75', 'echo RUNNING 5:00', restarts=3)[1] == 0  # It is preempted.
  said, status, error = job('exit 75', late, restarts=3)
  assert said == ['a b'] and status == 1 and 'submit it with a longer --time' in error


@pytest.mark.parametrize(
  ('options', 'gpus'),
  [
    ('--gres=gpu:8 --time=1', 32),
    ('--gpus-per-node=a100:8', 32),
    ('--gpus-per-task=1', 8),
    ('--gpus=7', 7),
    ('--gres=gpu:a100-80g:2', 8),
    ('--gres=shard:8', None),
    ('', None),
    ('--gpus-per-socket=2', None),
    ('--gres=gpu:8 --nodes=2', None),
    ('-N2 --gpus=8', None),
  ],
)
def test_the_gpus_of_a_job_are_counted_where_its_options_tell(options, gpus):
  assert sbatch.requested_gpus(options, 4, 2) == gpus


@pytest.mark.parametrize(
  ('flags', 'train', 'fact'),
  [
    (['--nodes=0'], TRAIN, '--nodes must be at least 1; got 0'),
    (
      ['--sbatch=--comment="open'],
      TRAIN,
      '--sbatch=--comment="open cannot be split into words',
    ),
    (
      ['--nodes=2', '--tasks-per-node=3', '--sbatch=--gres=gpu:8'],
      TRAIN,
      'the 16 GPUs of the job must be divided evenly among --nodes × --tasks-per-node = 6',
    ),
    (
      ['--tasks-per-node=8', '--sbatch=--gres=gpu:8'],
      [*TRAIN, '--config.decode.batch_size=12'],
      'must divide decode.batch_size',
    ),
    (
      [],
      [TRAIN[0], '--flagfile={folder}/flags'],
      '--workdir is missing; pass --workdir=DIR after --',
    ),
  ],
)
def test_user_error_is_a_one_line_message_before_a_job_is_asked_for(
  launch, tmp_path, flags, train, fact
):
  (tmp_path / 'flags').write_text(f'--workdir={tmp_path}/run\n')
  assert fact in launch.rejects(
    *flags, '--dry_run', '--', *(word.format(folder=tmp_path) for word in train)
  )


def test_the_answer_of_sbatch_is_printed(tmp_path, monkeypatch):
  monkeypatch.setenv('PATH', str(tmp_path))
  with pytest.raises(
    UserError, match='the command sbatch is missing here; run this on a machine'
  ):
    sbatch.submit(['sbatch'], '')
  program = tmp_path / 'sbatch'
  program.write_text(
    '#!/bin/sh\nread -r line && echo "job $line $1" && exit\n'
    'printf "no such\\npartition" >&2; exit 1\n'
  )
  program.chmod(0o755)
  assert sbatch.submit(['sbatch', '-N2'], '7\n') == 'job 7 -N2'
  with pytest.raises(UserError, match='rejected the job: no such part'):
    sbatch.submit(['sbatch', '-N2'], '')
