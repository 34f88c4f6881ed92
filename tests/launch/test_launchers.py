"""The commands that launch/slurm.py and launch/tpu.py run, recorded by stand-ins."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launch import sbatch

ROOT = Path(__file__).parents[2]
# Records its arguments, and answers as a file next to it says. The file has output and a status for
# calls with a certain argument.
STAND_IN = f"""#!{sys.executable}
import json, pathlib, sys
here = pathlib.Path(__file__).parent
with open(here / 'calls', 'a') as calls:
  calls.write(json.dumps([pathlib.Path(__file__).name, *sys.argv[1:]]) + '\\n')
for answer in json.loads((here / 'answers').read_text()):
  if answer['to'] in sys.argv and answer['times'] > 0:
    answers = json.loads((here / 'answers').read_text())
    next(each for each in answers if each['to'] in sys.argv and each['times'] > 0)['times'] -= 1
    (here / 'answers').write_text(json.dumps(answers))
    print(answer.get('out', ''))
    print(answer.get('err', ''), file=sys.stderr)
    sys.exit(answer.get('status', 0))
"""
TRAIN = ['--config=configs/quickstart.py', '--workdir=/mnt/disk/a run', '--config.train.steps=700']
SLICE = ['--name=mine', '--accelerator=v5litepod-16', '--zone=us-west4-a']


@pytest.fixture
def launch(tmp_path):
  """(script, arguments, answers=) -> status, output, error, and the calls of the stand-ins."""
  def run(script, *arguments, answers=(), programs=('sbatch', 'gcloud', 'xpk')):
    for name in programs:
      (tmp_path / name).write_text(STAND_IN)
      (tmp_path / name).chmod(0o755)
    (tmp_path / 'answers').write_text(json.dumps([{'times': 1, **each} for each in answers]))
    done = subprocess.run(
        [sys.executable, f'launch/{script}.py', *arguments], cwd=ROOT, capture_output=True,
        # With this platform, JAX would fail if a device was used.
        text=True, check=False, env={**os.environ, 'JAX_PLATFORMS': 'none', 'PATH': (
            f'{tmp_path}:/usr/bin:/bin' if programs else str(tmp_path))})
    calls = tmp_path / 'calls'
    lines = calls.read_text().splitlines() if calls.exists() else []
    return done.returncode, done.stdout, done.stderr, [json.loads(line) for line in lines]

  return run


def test_a_dry_run_prints_the_job_and_submits_nothing(launch, tmp_path):
  train = ['--config=configs/quickstart.py', f'--workdir={tmp_path}/a run']
  status, out, err, calls = launch('slurm', '--nodes=2', '--tasks-per-node=8', '--dry_run',
                                   '--sbatch=--gres=gpu:8 --comment="of mine"', '--', *train)
  assert status == 0 and not calls, err
  first, shell, *rest, last = out.splitlines()
  assert {'--nodes=2', '--ntasks-per-node=8', '--gres=gpu:8', '--comment=of mine', '--requeue',
          '--signal=USR1@120', '--open-mode=append'} <= set(shlex.split(first))
  assert first.endswith(" <<'END'") and (shell, last) == ('#!/bin/bash', 'END')
  srun = next(shlex.split(line) for line in rest if line.startswith('srun'))
  assert srun[:2] == ['srun', '--kill-on-bad-exit=0'] and srun[3:] == [
      sys.executable, str(ROOT / 'train.py'), '--distributed', *train,
      '--config.train.grace_seconds=100']


def test_a_job_inherits_the_environment_as_it_is(launch, tmp_path, monkeypatch):
  # The nodes may have other processors and another home than the machine that submits.
  for name in ('JAX_COMPILATION_CACHE_DIR', 'TF_CPP_MIN_LOG_LEVEL'):
    monkeypatch.delenv(name, raising=False)
  (tmp_path / 'sbatch').write_text(f'#!/bin/sh\n/usr/bin/env > {tmp_path}/inherited\n')
  (tmp_path / 'sbatch').chmod(0o755)
  status, _, err, _ = launch('slurm', '--', '--config=configs/quickstart.py',
                             f'--workdir={tmp_path}/run', programs=())
  assert status == 0, err
  inherited = (tmp_path / 'inherited').read_text()
  assert 'JAX_COMPILATION_CACHE_DIR' not in inherited and 'TF_CPP' not in inherited


@pytest.fixture
def job(tmp_path):
  """(code of a task, of squeue, earlier restarts, name) -> a job's output, status and errors."""
  def run(step, squeue, restarts=0, name=sbatch.JOB):
    for program, line in (('srun', f'echo "${{@:2}}"; {step}'), ('squeue', squeue), ('sleep', ''),
                          ('scontrol', 'echo scontrol "$@"; [ -f asked ] || ! touch asked')):
      (tmp_path / program).write_text(f'#!/bin/bash\n{line}\n')
      (tmp_path / program).chmod(0o755)
    done = subprocess.run(
        ['bash'], input=sbatch.script('a b', 'run', name), text=True, check=False, cwd=tmp_path,
        capture_output=True, timeout=60, env={
            'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'SLURM_JOB_ID': '7',
            'SLURM_RESTART_COUNT': str(restarts),
            # A job that is submitted from a part of an array inherits these.
            'SLURM_ARRAY_JOB_ID': '5', 'SLURM_ARRAY_TASK_ID': '3'})
    return done.stdout.splitlines(), done.returncode, done.stderr

  return run


@pytest.mark.parametrize(('step', 'state', 'again'), [
    ('exit 0', 'RUNNING 9:00', False), ('exit 1', 'RUNNING 9:00', False),
    ('exit 75', 'RUNNING UNLIMITED', True), ('exit 75', 'SIGNALING 1:00:00', True),
    ('exit 75', 'COMPLETING 9:00', False),  # The user has cancelled the job.
    # A slow task was killed, or was aborted because others had left.
    ('kill -TERM $PPID; exit 143', 'RUNNING 9:00', True), ('exit 134', 'RUNNING 1:58', True),
    ('exit 134', 'RUNNING 1:58:00', False), ('exit 1', 'RUNNING 1:58', False),
    ('kill -TERM $PPID; exit 1', 'RUNNING 9:00', False), ('exit 143', 'RUNNING 9:00', False)])
def test_a_job_asks_to_be_run_again_where_what_it_runs_was_stopped(job, step, state, again):
  said, status, _ = job(step, f'echo {state}')
  assert said == ['a b'] + ['scontrol requeue 7'] * 2 * again  # Slurm refuses once.
  assert (status == 0) == (again or step == 'exit 0')


def test_a_job_asks_again_where_slurm_does_not_answer_and_by_its_own_name(job):
  said, status, _ = job('exit 75', '[ -f busy ] || ! touch busy && echo RUNNING 9:00',
                        name=sbatch.PART_OF_ARRAY)
  assert said == ['a b'] + ['scontrol requeue 5_3'] * 2 and status == 0


def test_a_job_without_progress_is_not_queued_again(job):
  late = 'echo RUNNING 1:58'
  saves = 'mkdir -p run/checkpoints/$RANDOM; exit 75'
  assert job('exit 75', late, restarts=2)[1] == 0
  assert job(saves, late, restarts=3)[1] == 0
  assert job('exit 75', 'echo RUNNING 5:00', restarts=3)[1] == 0  # It is preempted.
  said, status, error = job('exit 75', late, restarts=3)
  assert said == ['a b'] and status == 1 and 'submit it with a longer --time' in error


def test_slurm_is_handed_what_the_dry_run_prints(launch, tmp_path):
  told = ['--tasks_per_node=2', '--', TRAIN[0], f'--workdir={tmp_path}/run']
  _, out, _, _ = launch('slurm', '--dry_run', *told)
  status, _, err, calls = launch('slurm', *told, answers=[{'to': '--nodes=1', 'out': 'job 7'}])
  assert status == 0 and 'job 7' in err, err
  assert calls == [shlex.split(out.splitlines()[0])[:-1]]


@pytest.mark.parametrize(('arguments', 'programs', 'fact'), [
    (['--nodes=0'], (), '--nodes must be at least 1; got 0'),
    (['--tasks-per-node=0'], (), '--tasks-per-node must be at least 1; got 0'),
    (['--sbatch=--comment="open'], (), '--sbatch=--comment="open cannot be split into words'),
    ([], (), 'there is no command sbatch here; start this on a machine with Slurm'),
    ([], ('sbatch',), 'sbatch refused the job: no such partition')])
def test_what_slurm_cannot_take_is_one_line(launch, one_error, tmp_path, arguments, programs, fact):
  status, out, err, _ = launch(
      'slurm', *arguments, '--', TRAIN[0], f'--workdir={tmp_path}/run', programs=programs,
      answers=[{'to': '--nodes=1', 'err': 'no such\npartition', 'status': 1}])
  assert status == 1 and out == '' and fact in one_error(err)


@pytest.mark.parametrize(('options', 'gpus'), [
    ('--gres=gpu:8 --time=1', 32), ('--gpus-per-node=a100:8', 32), ('--gpus-per-task=1', 8),
    ('--gpus=7', 7), ('--gres=gpu:a100-80g:2', 8), ('--gres=shard:8', None), ('', None),
    ('--gpus-per-socket=2', None), ('--gres=gpu:8 --nodes=2', None), ('-N2 --gpus=8', None)])
def test_the_gpus_of_a_job_are_counted_where_its_options_tell(options, gpus):
  assert sbatch.gpus(options, 4, 2) == gpus


@pytest.mark.parametrize(('script', 'place'), [
    ('slurm', ['--nodes=3', '--sbatch=--gres=gpu:1']),
    ('tpu', [*SLICE, '--accelerator=v5p-48']), ('tpu', [*SLICE, '--accelerator=v6e-24'])])
def test_devices_that_cannot_share_the_rows_are_refused_before_anything_is_asked_for(
    launch, one_error, script, place):
  status, out, err, calls = launch(script, *place, '--', *TRAIN)
  assert status == 1 and out == '' and not calls
  assert ('must divide the rows that go through the model at a time, train.tokens_per_batch / '
          'data.max_length / optimizer.accumulate = 64') in one_error(err)


@pytest.mark.parametrize(('script', 'place', 'fact'), [
    ('slurm', ['--nodes=2', '--tasks-per-node=3', '--sbatch=--gres=gpu:8'],
     'the 16 GPUs of the job must be divided evenly among --nodes × --tasks-per-node = 6'),
    ('slurm', ['--tasks-per-node=8', '--sbatch=--gres=gpu:8'], 'must divide decode.batch_size'),
    ('tpu', SLICE, 'must divide decode.batch_size')])
def test_processes_that_cannot_share_the_devices_are_refused_also_in_a_dry_run(
    launch, one_error, script, place, fact):
  status, out, err, _ = launch(script, *place, '--dry_run', '--', *TRAIN,
                               '--config.decode.batch_size=12')
  assert status == 1 and out == '' and fact in one_error(err)


def test_a_directory_that_only_a_file_of_flags_names_is_refused(launch, one_error, tmp_path):
  (tmp_path / 'flags').write_text(f'--workdir={tmp_path}/run\n')
  status, _, err, calls = launch('slurm', '--', TRAIN[0], f'--flagfile={tmp_path}/flags')
  assert status == 1 and not calls and '--workdir=DIR is needed after --' in one_error(err)


@pytest.mark.parametrize('script', ['slurm', 'tpu'])
def test_a_mistake_in_what_is_to_be_run_is_told_before_anything_is_asked_for(
    launch, one_error, script):
  place = SLICE if script == 'tpu' else []
  status, out, err, calls = launch(script, *place, '--', *TRAIN, '--config.train.step=3')
  assert status == 1 and out == '' and not calls
  assert 'did you mean config.train.steps?' in one_error(err)
  status, _, err, calls = launch(script, *place, *TRAIN)
  assert status == 1 and not calls
  assert one_error(err).startswith("Unknown command line flag 'config'; the arguments of train.py "
                                   'must stand after --, such as -- --config=')


def commands(out):
  return [shlex.split(line) for line in out.splitlines()]


def test_a_slice_is_asked_for_prepared_trained_on_and_its_cost_told(launch):
  told = [*SLICE, '--project=ours', '--spot', '--setup=mount it', '--', *TRAIN]
  status, out, err, calls = launch('tpu', '--dry_run', *told)
  assert status == 0 and not calls, err
  create, bundle, copy, prepare, train, cost = commands(out)
  place = ['--zone=us-west4-a', '--project=ours']
  resources, machine = (['gcloud', 'compute', 'tpus', each]
                        for each in ('queued-resources', 'tpu-vm'))
  assert create == [*resources, 'create', 'mine', *place, '--node-id=mine',
                    '--accelerator-type=v5litepod-16', '--runtime-version=v2-alpha-tpuv5-lite',
                    '--spot']
  assert bundle[3:6] == ['bundle', 'create', '--quiet'] and bundle[-1] == 'HEAD'
  assert copy == [*machine, 'scp', bundle[-2], 'mine:code.bundle', '--worker=all', *place]
  assert prepare[:6] == train[:6] == [*machine, 'ssh', 'mine']
  assert prepare[-3:] == train[-3:] == ['--worker=all', *place]
  steps = train[6].removeprefix('--command=').split(' && ')
  assert steps[1:3] == ['cd transformer-jax', '{ mount it; }']
  assert shlex.split(steps[3]) == ['.venv/bin/python', 'train.py', '--distributed', *TRAIN]
  assert cost[-len(place) - 3:] == ['delete', 'mine', *place, '--force']

  status, out, err, calls = launch('tpu', *told, answers=[
      {'to': 'describe', 'err': 'NOT_FOUND: none', 'status': 1},
      {'to': 'describe', 'out': 'ACTIVE'}])
  assert status == 0, err
  asked = [call[call.index('tpus') + 2] for call in calls]
  assert asked == ['describe', 'create', 'describe', 'scp', 'ssh', 'ssh']
  assert calls[1] == create and calls[-1] == train


@pytest.mark.parametrize(('setup', 'step'), [
    ('mount /x; cd /x;', '{ mount /x; cd /x; }'), ('serve &', '{ serve & }'),
    (r'find /x -exec ls {} \;', r'{ find /x -exec ls {} \;; }'), (' ', 'cd transformer-jax')])
def test_operators_of_the_setup_stay_together(launch, setup, step):
  _, out, err, _ = launch('tpu', '--dry_run', *SLICE, f'--setup={setup}', '--', *TRAIN)
  assert commands(out)[4][6].split(' && ')[-2] == step, err


@pytest.mark.parametrize('setup', ['mount /x  # later', 'if', '(a'])
def test_a_setup_that_the_shell_would_refuse_is_refused_before_anything_is_asked_for(
    launch, one_error, setup):
  status, _, err, calls = launch('tpu', *SLICE, f'--setup={setup}', '--', *TRAIN)
  assert status == 1 and not calls
  assert '--setup must be one or more shell commands' in one_error(err)


def test_a_repeated_gcloud_command_does_not_disturb_training(launch, tmp_path):
  """gcloud repeats a command after a broken connection, which the command itself survives."""
  _, out, err, _ = launch('tpu', '--dry_run', *SLICE, '--', *TRAIN)
  prepare, step = (command[6].removeprefix('--command=') for command in commands(out)[3:5])
  home = tmp_path / 'transformer-jax'
  (home / '.venv' / 'bin').mkdir(parents=True)
  (home / '.venv' / 'bin' / 'python').symlink_to(sys.executable)
  (home / 'train.py').write_text('print("up", flush=True); input()')
  with subprocess.Popen(['bash', '-c', step], cwd=tmp_path, stdin=subprocess.PIPE, text=True,
                        stdout=subprocess.PIPE) as first:
    assert first.stdout.readline() == 'up\n', err
    for command in (prepare, step):
      again = subprocess.run(['bash', '-c', command], cwd=tmp_path, capture_output=True, text=True,
                             check=False, timeout=60)
      assert again.returncode == 1 and again.stderr == 'error: training already runs here\n'
    first.communicate('\n')
  assert first.returncode == 0


def test_a_slice_that_is_there_is_trained_on_and_a_run_that_was_stopped_is_not_an_error(launch):
  status, _, err, calls = launch('tpu', *SLICE, '--', *TRAIN, answers=[
      {'to': 'describe', 'out': 'ACTIVE', 'times': 2}, {'to': 'ssh'}, {'to': 'ssh', 'status': 75}])
  assert status == 75 and 'goes on from there' in err, err
  assert not any('create' in call for call in calls)


@pytest.mark.parametrize(('answers', 'facts'), [
    ([{'to': 'describe', 'out': 'SUSPENDED', 'times': 2}],
     ['the slice mine is SUSPENDED; delete it', 'queued-resources delete mine']),
    ([{'to': 'describe', 'out': 'PROVISIONING'},
      {'to': 'describe', 'err': 'NOT_FOUND', 'status': 1, 'times': 2}], ['the slice mine is gone']),
    ([{'to': 'describe', 'err': 'no permission\nat all', 'status': 1}],
     ['gcloud cannot describe the slice: no permission at all']),
    ([{'to': 'describe', 'out': 'WAITING_FOR_RESOURCES'},
      {'to': 'describe', 'err': 'no network', 'status': 1}],
     ['gcloud cannot describe the slice: no network']),
    ([{'to': 'describe', 'out': 'ACTIVE', 'times': 2}, {'to': 'scp', 'status': 3}],
     ['gcloud compute tpus tpu-vm scp … ended with status 3'])])
def test_a_slice_that_fails_is_one_line(launch, one_error, answers, facts):
  status, out, err, _ = launch('tpu', *SLICE, '--', *TRAIN, answers=answers)
  message = one_error('\n'.join(line for line in err.splitlines() if line))
  assert status == 1 and all(fact in message for fact in facts)
  # A slice that was there is there still, and one that was asked for still comes.
  assert ('costs money until it is deleted' in out) == (
      answers[-1]['to'] == 'scp' or 'no network' in message)


def test_a_cluster_is_handed_the_folder(launch):
  status, out, err, calls = launch('tpu', *SLICE, '--cluster=big', '--restarts=3', '--', *TRAIN)
  assert status == 0, err
  call, = calls
  assert commands(out) == [call]
  assert call[:3] == ['xpk', 'workload', 'create'] and {
      '--cluster=big', '--workload=mine', '--tpu-type=v5litepod-16', '--zone=us-west4-a',
      '--max-restarts=3', f'--script-dir={ROOT}'} <= set(call)
  train = call[-1].removeprefix('--command=').split(' && ')[-1]
  assert shlex.split(train) == ['exec', 'python', 'train.py', '--distributed', *TRAIN]
  assert '--restart-on-exit-codes=75' in call


@pytest.mark.parametrize(('arguments', 'fact'), [
    (SLICE[1:], '--name is needed'), (SLICE[:1] + SLICE[2:], '--accelerator is needed'),
    (SLICE[:2], '--zone is needed'),
    ([*SLICE, '--accelerator=v5lite16'], "such as v5litepod-16 or v5p-128; got 'v5lite16'"),
    ([*SLICE, '--accelerator=a100-8'], "such as v5litepod-16 or v5p-128; got 'a100-8'"),
    ([*SLICE, '--restarts=-1'], '--restarts must be at least 0; got -1'),
    ([*SLICE, '--', TRAIN[0]], '--workdir=DIR is needed after --'),
    ([*SLICE, '--', TRAIN[0], '--workdir=runs/big'], '--workdir must be a full path, on a disk'),
    ([*SLICE, '--cluster='], '--cluster= names nothing'),
    ([*SLICE, '--cluster=big', '--spot'], '--spot is for a slice'),
    (SLICE, 'there is no command gcloud here'),
    ([*SLICE, '--cluster=big'], 'there is no command xpk here')])
def test_what_tpus_cannot_take_is_one_line(launch, one_error, arguments, fact):
  train = () if '--' in arguments else ('--', *TRAIN)
  status, _, err, _ = launch('tpu', *arguments, *train, programs=())
  assert status == 1 and fact in one_error(err)
