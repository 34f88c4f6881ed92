r"""Starts one training run on a slice of Google's TPUs, by gcloud or, in a GKE cluster, by xpk.

  python launch/tpu.py --name=NAME --accelerator=v5litepod-16 --zone=us-west4-a [--spot] \
      --setup='mountpoint -q /mnt/disk || sudo mount DISK /mnt/disk' \
      -- --config=configs/wmt14.py:big --workdir=/mnt/disk/big --config.data.dir=/mnt/disk/data \
      --config.train.tokens_per_batch=24576
  python launch/tpu.py --name=NAME --accelerator=v5litepod-16 --zone=us-west4-a --cluster=CLUSTER \
      -- --config=configs/wmt14.py:big --workdir=/mnt/disk/big --config.data.dir=/mnt/disk/data \
      --config.train.tokens_per_batch=24576

The arguments after `--` go to train.py on every host; the config is checked here first.

Without --cluster, gcloud creates a slice of that name unless there is one. The commit that is
checked out is copied to the slice's hosts and installed, and training runs until it ends. The same
command resumes it. Delete a slice that was taken away, by the command that is printed; the next
start then creates a new one. With --cluster, xpk sends this folder to the cluster, uncommitted
changes included. The cluster restarts training that was stopped or whose node is gone.

The run's directory and the data must be on a disk that every host has mounted, such as Filestore.
--setup is a command that each host runs first, such as one that mounts the disk. The storage
of a cluster is attached by xpk. --dry_run prints the commands, and runs none of them.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from absl import flags, logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from launch.train_arguments import ROOT, checked, run_launcher
from transformer.commands import shared_flags
from transformer.errors import Preempted, UserError
from transformer.system import command_line
from transformer.system.signals import EXIT_STATUS

_NAME = flags.DEFINE_string('name', None, 'The name of the slice, or of the workload.')
_ACCELERATOR = flags.DEFINE_string('accelerator', None, 'The type and size, such as v5litepod-16.')
_ZONE = flags.DEFINE_string('zone', None, 'The zone of the slice or cluster.')
_PROJECT = flags.DEFINE_string('project', None, 'The project; default: that of gcloud.')
_SPOT = flags.DEFINE_bool('spot', False, 'Use a spot slice; Google may take it away at any time.')
_SETUP = flags.DEFINE_string('setup', None, 'A shell command that each host runs first.')
_CLUSTER = flags.DEFINE_string('cluster', None, 'The GKE cluster, made by xpk.')
_RESTARTS = flags.DEFINE_integer('restarts', 50, 'How many times a cluster may restart training.')
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print the commands, and run none of them.')

# Google's system image for each kind of TPU; the last one is for all older kinds.
_SYSTEMS = (('v6e', 'v2-alpha-tpuv6e'), ('v5litepod', 'v2-alpha-tpuv5-lite'),
            ('v5p', 'v2-alpha-tpuv5'), ('v', 'tpu-ubuntu2204-base'))
_INSTALL = '{pip} install -r requirements.txt "jax[tpu]"'
# `^[^ ]*python` leaves out the shell that runs pgrep, whose command line has the same words.
_BUSY = ('if pgrep -f "^[^ ]*python train.py --distributed" > /dev/null; '
         'then echo "error: training already runs here" >&2; exit 1; fi')
# The Python of Google's image is too old for this project.
_PREPARE = (f'{_BUSY} && rm -rf transformer-jax && '
            'git clone --quiet code.bundle transformer-jax && '
            'cd transformer-jax && python3 -m pip install --quiet --user uv && '
            'python3 -m uv venv --python=3.12 && ' + _INSTALL.format(pip='python3 -m uv pip'))
_DEVICES_OF_A_HOST = 8  # At most.
_COMING = ('CREATING', 'ACCEPTED', 'WAITING_FOR_RESOURCES', 'PROVISIONING')
_LOOK_SECONDS = 20


def main(arguments: Sequence[str]):
  """Wires flags to commands."""
  for flag in (_NAME, _ACCELERATOR, _ZONE):
    if not flag.value:
      raise UserError(f'--{flag.name} is needed')
  shared_flags.check_at_least(0, _RESTARTS)
  system = next((system for start, system in _SYSTEMS if _ACCELERATOR.value.startswith(start)),
                None)
  if system is None or not re.fullmatch(r'.+-[1-9]\d*', _ACCELERATOR.value):
    raise UserError(f'--accelerator must be a kind of TPU and a size, such as v5litepod-16 or '
                    f'v5p-128; got {_ACCELERATOR.value!r}')
  if arguments[1:]:
    _check_workdir(command_line.workdir(arguments))
  shared_flags.check_named(_PROJECT, _SETUP, _CLUSTER)
  if _CLUSTER.value and _SPOT.value:
    raise UserError('--spot is for a slice; leave it out with --cluster, which has nodes already')
  if _SETUP.value:
    _check_setup()
  # The run's directory and the data are not on this machine.
  with tempfile.TemporaryDirectory() as folder:
    devices = _devices(_ACCELERATOR.value)
    train = shlex.join(checked(
        arguments[1:], f'--workdir={folder}/run', '--nofiles', f'--devices={devices}',
        f'--processes={-(-devices // _DEVICES_OF_A_HOST)}'))
    if _CLUSTER.value:
      _run(workload(train))
    else:
      _train_on_slice(system, Path(folder) / 'code.bundle', train)


def _check_workdir(folder: str | None):
  """Refuses a run's directory that would not outlive the next start."""
  if folder is None:
    raise UserError('--workdir=DIR is needed after --, on a disk that every host has mounted')
  if not os.path.isabs(folder):
    raise UserError(f'--workdir must be a full path, on a disk that every host has mounted, since '
                    f'the code lies in a folder that each start makes anew; got {folder}')


def _devices(accelerator: str) -> int:
  """Returns the number of JAX's devices on a slice; some kinds count cores, two to a device."""
  kind, _, size = accelerator.rpartition('-')
  return max(int(size) // (2 if kind in ('v4', 'v5p') else 1), 1)


def workload(train: str) -> list[str]:
  """Returns the command that starts training on a cluster."""
  return ['xpk', 'workload', 'create', f'--cluster={_CLUSTER.value}', f'--workload={_NAME.value}',
          f'--tpu-type={_ACCELERATOR.value}', '--num-slices=1', *_place(),
          # xpk restarts by itself after signals and aborts; this adds the status of a stopped run.
          f'--max-restarts={_RESTARTS.value}', f'--restart-on-exit-codes={EXIT_STATUS}',
          '--base-docker-image=python:3.12',
          f'--script-dir={ROOT}',
          _steps(_INSTALL.format(pip='pip'), f'exec python train.py {train}')]


def _train_on_slice(system: str, bundle: Path, train: str):
  """Creates a slice unless there is one, and trains on it."""
  if _DRY_RUN.value or _state() is None:
    _run(_resource('create', f'--node-id={_NAME.value}',
                   f'--accelerator-type={_ACCELERATOR.value}', f'--runtime-version={system}',
                   *(['--spot'] if _SPOT.value else [])))
  comes = True
  try:
    while not _DRY_RUN.value and (state := _state()) != 'ACTIVE':
      if state not in _COMING:
        comes = False
        raise UserError(f'the slice {_NAME.value} is {state or "gone"}; delete it and start this '
                        f'again; to delete it: {shlex.join(_deletion())}')
      logging.info('the slice is %s; looking again every %d seconds', state, _LOOK_SECONDS)
      time.sleep(_LOOK_SECONDS)
    _train_there(bundle, train)
  finally:
    if comes:
      print(f'# The slice costs money until it is deleted: {shlex.join(_deletion())}', flush=True)


def _train_there(bundle: Path, train: str):
  """Installs this code on the slice, and trains."""
  if subprocess.run(['git', '-C', str(ROOT), 'status', '--porcelain'], check=False,
                    capture_output=True).stdout:
    logging.warning('the slice gets the commit that is checked out, without uncommitted changes')
  _run(['git', '-C', str(ROOT), 'bundle', 'create', '--quiet', str(bundle), 'HEAD'])
  _run(_machine('scp', str(bundle), f'{_NAME.value}:code.bundle'))
  _run(_machine('ssh', _NAME.value, f'--command={_PREPARE}'))
  # If the connection breaks, training goes on. gcloud repeats the command; _BUSY ends the repeat.
  steps = _steps(_BUSY, 'cd transformer-jax', f'.venv/bin/python train.py {train}')
  status = _run(_machine('ssh', _NAME.value, steps), allowed=(0, EXIT_STATUS))
  if status:
    raise Preempted('training on the slice was stopped; the same command goes on from there')


def _steps(*steps: str) -> str:
  """Returns the flag that runs shell commands one after another, and --setup before the last."""
  return '--command=' + ' && '.join([*steps[:-1], *_setup(), steps[-1]])


def _setup() -> list[str]:
  """Returns the command of --setup, if it is given, in braces that keep its operators together."""
  command = (_SETUP.value or '').strip()
  ended = command.endswith((';', '&')) and not command.endswith('\\;')
  return [f'{{ {command}{"" if ended else ";"} }}'] if command else []


def _check_setup():
  """Refuses a --setup that the shell would refuse on hosts that cost money already."""
  checked = subprocess.run(['bash', '-n', '-c', ''.join(_setup())], check=False, text=True,
                           capture_output=True)
  if checked.returncode:
    raise UserError(f'--setup must be one or more shell commands, without a comment at the end; '
                    f'got {_SETUP.value!r}; bash says: '
                    f'{checked.stderr.strip().splitlines()[0]}')


def _place() -> list[str]:
  return [f'--zone={_ZONE.value}', *([f'--project={_PROJECT.value}'] if _PROJECT.value else [])]


def _resource(action: str, *arguments: str) -> list[str]:
  return ['gcloud', 'compute', 'tpus', 'queued-resources', action, _NAME.value, *_place(),
          *arguments]


def _deletion() -> list[str]:
  return _resource('delete', '--force')


def _machine(action: str, *arguments: str) -> list[str]:
  return ['gcloud', 'compute', 'tpus', 'tpu-vm', action, *arguments, '--worker=all', *_place()]


def _state() -> str | None:
  """Returns the slice's state by Google's names; None if there is no slice."""
  try:
    done = subprocess.run(_resource('describe', '--format=value(state.state)'), check=False,
                          capture_output=True, text=True)
  except FileNotFoundError as error:
    raise _missing('gcloud') from error
  if done.returncode and 'NOT_FOUND' not in done.stderr:
    raise UserError(f'gcloud cannot describe the slice: {" ".join(done.stderr.split())}')
  return None if done.returncode else done.stdout.strip()


def _run(command: list[str], allowed: Sequence[int] = (0,)) -> int:
  """Prints a command and, without --dry_run, runs it."""
  print(shlex.join(command), flush=True)
  if _DRY_RUN.value:
    return 0
  try:
    status = subprocess.run(command, check=False).returncode
  except FileNotFoundError as error:
    raise _missing(command[0]) from error
  if status not in allowed:
    raise UserError(f'{shlex.join(command[:5])} … ended with status {status}, for the '
                    f'reason above; the same command goes on from there')
  return status


def _missing(program: str) -> UserError:
  where = {'gcloud': 'https://cloud.google.com/sdk', 'xpk': 'pip install xpk'}
  return UserError(f'there is no command {program} here; install it ({where.get(program)}), or see '
                   f'the commands with --dry_run')


if __name__ == '__main__':
  run_launcher(main)
