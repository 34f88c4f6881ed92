"""The record of a run, `run.json`: what produced its numbers, and what they cost."""

import os
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from absl import logging

from transformer import files
from transformer.runs.metrics_file import read_metrics
from transformer.runs.run_directory import (
  FORMAT,
  METRICS,
  RUN,
  commit,
  read_record,
  read_settings,
  versions,
)
from transformer.system.jax_backend import check_switches, recorded_switches
from transformer.system.machine import usable_cores


def describe(reproducible: bool, **facts) -> dict[str, Any]:
  """Returns the content of `run.json`: facts about the run, and about this process."""
  # `add_session` fills `resumed`.
  return {'format': FORMAT, **_session(reproducible), **facts, 'resumed': []}


def add_session(
  workdir: str | os.PathLike,
  reproducible: bool,
  changes: Mapping[str, Mapping[str, Any]],
  trains: bool,
  own: Mapping[str, str],
):
  """Records in `run.json` that this process starts the run again, or only evaluates it.

  Refuses other values of JAX's switches than in the process that trained before. Warns of another
  number of CPU cores, and of another digest `own` of a module of one's own.
  """
  about = read_record(workdir)
  session = _session(reproducible) | {'own_code': dict(own)}
  last = _sessions_that_train(about)[-1]
  before = last['devices']
  now = session['devices']
  if trains:
    check_switches(last['jax'])
    if now['platform'] == 'cpu' and before['cpu_cores'] != now['cpu_cores']:
      logging.warning(
        'the run goes on with %d CPU cores, and had %d before: the order of '
        'additions changes, so numbers differ by rounding from an uninterrupted run',
        now['cpu_cores'],
        before['cpu_cores'],
      )
    for spec, digest in own.items():
      if last['own_code'].get(spec, digest) != digest:
        logging.warning(
          'the module of %s has changed since the run trained last, so the run may '
          'differ from an uninterrupted one',
          spec,
        )
  about['resumed'].append({**session, 'changed': dict(changes), 'trains': trains})
  files.write_sealed(Path(workdir) / RUN, about)


def _session(reproducible: bool) -> dict[str, Any]:
  """Returns the time, command, commit, packages and devices of this process."""
  devices = jax.devices()
  return {
    'started': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()),
    'command': [os.path.basename(sys.argv[0]), *sys.argv[1:]],
    'commit': commit(),
    **versions(),
    'devices': {
      'platform': devices[0].platform,
      'kind': devices[0].device_kind,
      'count': len(devices),
      'processes': jax.process_count(),
      'cpu_cores': usable_cores(),
      'machine': platform.machine(),
    },
    'reproducible': reproducible,
    'xla_flags': os.environ.get('XLA_FLAGS', '').split(),
    'jax': recorded_switches(),
  }


def _sessions_that_train(about: Mapping[str, Any]) -> list[Mapping[str, Any]]:
  """Returns the sessions in the content of `run.json` that made updates, in their order."""
  return [about, *(session for session in about['resumed'] if session['trains'])]


def record_cost(workdir: Path, step: int):
  """Logs and records in `run.json` what the first `step` updates cost, as in the paper's table 2.

  The hours are hours of updates, times the number of devices, without compiling, evaluating and
  saving. They are None if no line of metrics has a speed, or the number of devices has changed.
  """
  about = read_record(workdir)
  if about['flops_per_update'] is None:
    return
  flops = step * about['flops_per_update']
  if about.get('cost', {}).get('flops') == flops:  # The run was done before this start.
    return
  sessions = [session['devices'] for session in _sessions_that_train(about)]
  count = sessions[-1]['count']
  seconds = _seconds_of_updates(workdir, step)
  hours = None
  if seconds is not None and all(devices['count'] == count for devices in sessions):
    hours = seconds * count / 3600
  devices = f'{count} {sessions[-1]["kind"]}'
  took = '' if hours is None else f' in {hours:.3g} device hours'
  logging.info('trained with %.2e FLOPs%s on %s', flops, took, devices)
  cost = {'flops': flops, 'device_hours': hours, 'devices': devices}
  files.write_sealed(workdir / RUN, about | {'cost': cost})


def _seconds_of_updates(workdir: Path, step: int) -> float | None:
  """Returns the seconds that the first `step` updates took; None if no line has a speed.

  Updates without a speed, such as the first of a process, take the mean time of the others.
  """
  tokens = read_settings(workdir).train.tokens_per_batch
  seconds = 0.0
  timed = 0
  before = 0
  for line in read_metrics(workdir / METRICS):
    if 'train/fill' not in line or line['step'] > step:
      continue
    if line.get('tokens_per_second'):
      updates = line['step'] - before
      seconds += line['train/fill'] * updates * tokens / line['tokens_per_second']
      timed += updates
    before = line['step']
  return seconds * step / timed if timed else None
