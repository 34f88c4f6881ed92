"""Runs multi-process training on this machine, over localhost.

  python launch/local.py --processes=2 -- --config=configs/NAME.py --workdir=DIR [--config.…]
  python launch/local.py --processes=4 --cpu_devices=2 -- --config=… --workdir=…

The arguments after `--` go to train.py. On a CPU, each process has --cpu_devices virtual devices;
GPUs are split evenly. All processes write checkpoints, and the process that locks
encoded/KEY first writes the encoded text. Only process 0 writes other files and prints progress. If
a process fails or is killed, the others exit within a minute, and the reason is printed. Rerun the
same command to resume from the last checkpoint. Signals are forwarded to all processes.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import flags

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from launch import child_process
from launch.gpus import visible_gpus
from launch.train_arguments import ROOT, distributed_arguments, run_launcher
from transformer.cli import shared_flags
from transformer.errors import UserError
from transformer.system.signals import EXIT_STATUS

_PROCESSES = flags.DEFINE_integer('processes', 2, 'The number of processes.')
_DEVICES = flags.DEFINE_integer(
  'cpu_devices', 1, 'The number of virtual devices per process, on a CPU.'
)

# Grace period for the other processes to exit after one has failed.
_PATIENCE_SECONDS = 20
_LOOK_SECONDS = 0.1
_LINES = 20  # Number of a failed process's last lines to print.
_LOG = re.compile(r'[IW]\d{4} ')


def main(arguments: Sequence[str]):
  """Reads the flags and starts the processes."""
  shared_flags.check_at_least(1, _PROCESSES, _DEVICES)
  variables = environments(_PROCESSES.value, _DEVICES.value, visible_gpus(os.environ))
  run(
    [sys.executable, str(ROOT / 'train.py'), *distributed_arguments(arguments[1:])],
    variables,
  )


def environments(
  processes: int, devices: int, gpus: Sequence[str]
) -> list[dict[str, str]]:
  """Returns the environment variables of each process: its devices and how to find the others.

  On a CPU, a process has `devices` virtual devices. GPUs, if any, are split evenly.
  """
  share, remainder = divmod(len(gpus), processes)
  if remainder:
    raise UserError(
      f'--processes must divide the {len(gpus)} GPUs; got {processes}; set '
      f'CUDA_VISIBLE_DEVICES to use fewer, or JAX_PLATFORMS=cpu to use none'
    )
  with socket.socket() as probe:
    probe.bind(('localhost', 0))
    port = probe.getsockname()[1]
  variables = [
    {
      'JAX_COORDINATOR_ADDRESS': f'localhost:{port}',
      'JAX_NUM_PROCESSES': str(processes),
      'JAX_PROCESS_ID': str(index),
      'JAX_NUM_CPU_DEVICES': str(devices),
    }
    for index in range(processes)
  ]
  if share:
    for index, environment in enumerate(variables):
      environment['CUDA_VISIBLE_DEVICES'] = ','.join(
        gpus[index * share : (index + 1) * share]
      )
  return variables


def run(command: Sequence[str], variables: Sequence[Mapping[str, str]]):
  """Runs `command` once per entry of `variables`, its environment, until all processes exit.

  Raises:
    UserError: a process failed; the message names the process and its status or signal.
    SystemExit: the processes failed, and the first one has printed the reason.
    StoppedBySignal: a signal stopped the processes.
  """
  children: list[subprocess.Popen] = []
  with (
    child_process.forward_signals(children) as signals,
    contextlib.ExitStack() as stack,
  ):
    # The first process prints for all. Output of the others is shown only if they fail.
    errors = [
      None,
      *(stack.enter_context(tempfile.TemporaryFile()) for _ in variables[1:]),
    ]
    try:
      for environment, file in zip(variables, errors, strict=True):
        # Discard standard output: train.py prints nothing there, but Gloo prints a greeting.
        child_process.start_child(
          children,
          signals,
          command,
          stdout=subprocess.DEVNULL,
          stderr=file,
          env={**os.environ, **environment},
        )
      first = _first_to_fail(children)
      _end_all(children)
    finally:
      for child in children:
        child.kill()
    if first is None:
      return
    status = children[first].returncode
    lines = []
    if first:
      errors[first].seek(0)
      lines = errors[first].read().decode(errors='replace').splitlines()[-_LINES:]
      lines = [line for line in lines if not _LOG.match(line)]
  # A slow process that was asked to stop may be aborted when the others have left.
  if status == EXIT_STATUS or (signals and status != 1):
    raise child_process.stopped_by_signal(signals)
  if status == 1 and not lines:
    raise SystemExit(1)
  print(*lines, sep='\n', file=sys.stderr)
  ending = (
    f'was killed by {signal.Signals(-status).name}'
    if status < 0
    else f'ended with status {status}'
  )
  raise UserError(
    f'process {first} of {len(children)} {ending}, so all were stopped; rerun the command to '
    'resume from the last checkpoint'
  )


def _first_to_fail(children: Sequence[subprocess.Popen]) -> int | None:
  """Waits until all succeed or one fails; returns the index of the failed process, else None."""
  while True:
    statuses = [child.poll() for child in children]
    failed = [index for index, status in enumerate(statuses) if status]
    if failed or None not in statuses:
      return failed[0] if failed else None
    time.sleep(_LOOK_SECONDS)


def _end_all(children: Sequence[subprocess.Popen]):
  """Waits for the other processes up to the grace period, then kills them."""
  deadline = time.monotonic() + _PATIENCE_SECONDS
  for child in children:
    try:
      child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
      child.kill()
      child.wait()


if __name__ == '__main__':
  run_launcher(main)
