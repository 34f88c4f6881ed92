"""The record of a run, `run.json`: what produced its numbers, and what they cost."""

import contextlib
import importlib.metadata
import json
import os
import platform
import sys
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from transformer import files
from transformer.runs.run_directory import (
  CONFIG,
  METRICS,
  RUN,
  WEIGHTS_ALONE,
  commit,
  read_record,
)
from transformer.system.machine import usable_cores

_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'numpy', 'sentencepiece',
             'sacrebleu', 'tensorflow-datasets')


def describe(fingerprints: Mapping[str, str], counts: Mapping[str, Mapping[str, int]],
             parameters: int, flops_per_update: float, reproducible: bool,
             origin: Mapping[str, Any] | None = None,
             frozen: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
  """Returns the content of `run.json`, with what is known of this process.

  Args:
    fingerprints: SHA-256 of each vocabulary and of every corpus, by name.
    counts: numbers of pairs that encoding kept, dropped and cut, by corpus.
    origin: identifies the parameters that the run starts from; None if they are random.
    frozen: identifies the frozen arrays of the objective.
  """
  return {
      **_session(reproducible),
      'parameters': parameters,
      'flops_per_update': flops_per_update,
      'data': dict(fingerprints),
      'counts': {name: dict(kinds) for name, kinds in counts.items()},
      'origin': origin and dict(origin),
      'frozen': list(map(dict, frozen)),
      'resumed': [],  # `add_session` fills it.
  }


def describe_weights(fingerprints: Mapping[str, str], parameters: int, reproducible: bool,
                     steps: list[int]) -> dict[str, Any]:
  """Returns the content of `run.json` for weights alone, which come from checkpoints of `steps`."""
  about = describe(fingerprints, {}, parameters, 0.0, reproducible)
  about.pop('flops_per_update')
  return {**about, WEIGHTS_ALONE: steps}


def add_session(workdir: str | os.PathLike, reproducible: bool,
                changes: Mapping[str, Mapping[str, Any]], trains: bool = True,
                own: Mapping[str, str] = types.MappingProxyType({})):
  """Records in `run.json` that this process starts the run again.

  Warns if the process that trained before had another number of CPU cores, or another module of
  one's own.

  Args:
    changes: the settings that changed, by dotted name.
    trains: whether the run goes on; it may have made its last step.
    own: the digest of each of `Config.own_code`.

  Raises:
    UserError: the run would go on with other values of the switches that `run.json` records.
  """
  from transformer.system.jax_backend import check_same_switches  # It imports JAX.

  about = read_record(workdir)
  session = _session(reproducible) | {'own_code': dict(own)}
  last = _sessions_that_train(about)[-1]
  before, now = last['devices'], session['devices']
  if trains:
    check_same_switches(last.get('jax', {}))
    if now['platform'] == 'cpu' and before['cpu_cores'] != now['cpu_cores']:
      logging.warning('the run goes on with %d CPU cores, and had %d before: the order of '
                      'additions changes, so numbers differ by rounding from an uninterrupted run',
                      now['cpu_cores'], before['cpu_cores'])
    for spec, digest in own.items():
      if last.get('own_code', {}).get(spec, digest) != digest:
        logging.warning('the module of %s has changed since the run trained last, so the run may '
                        'differ from an uninterrupted one', spec)
  about['resumed'].append({**session, 'changed': dict(changes), 'trains': trains})
  files.write_sealed(Path(workdir) / RUN, about)


def _sessions_that_train(about: Mapping[str, Any]) -> list[Mapping[str, Any]]:
  """Returns the sessions in the content of `run.json` that made updates, in their order."""
  return [about, *(session for session in about['resumed'] if session.get('trains', True))]


def _session(reproducible: bool) -> dict[str, Any]:
  """Returns the time, command, commit, packages and devices of this process."""
  import jax  # Imported here so that commands can read a directory without a device.

  from transformer.system.jax_backend import recorded_switches

  devices, versions = jax.devices(), {}
  for name in _PACKAGES:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # Text files need no TFDS.
      versions[name] = importlib.metadata.version(name)
  return {
      'started': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()),
      'command': [os.path.basename(sys.argv[0]), *sys.argv[1:]],
      'commit': commit(),
      'python': platform.python_version(),
      'packages': versions,
      'devices': {'platform': devices[0].platform, 'kind': devices[0].device_kind,
                  'count': len(devices), 'processes': jax.process_count(),
                  'cpu_cores': usable_cores(), 'machine': platform.machine()},
      'reproducible': reproducible,
      'xla_flags': os.environ.get('XLA_FLAGS', '').split(),
      'jax': recorded_switches(),
  }


class TrainingCost(NamedTuple):
  """The cost of a run up to a checkpoint, as in table 2 of the paper.

  Attributes:
    flops: floating-point operations, as `model.flops.update_flops` counts them.
    device_hours: hours of updates, times the number of devices; without compiling, evaluating
      and saving. None if no line of metrics has a speed, or the number of devices has changed.
    devices: the number and kind of the devices that trained last.
  """

  flops: float
  device_hours: float | None
  devices: str

  def __str__(self) -> str:
    hours = '' if self.device_hours is None else f' in {self.device_hours:.3g} device hours'
    return f'trained with {self.flops:.2e} FLOPs{hours} on {self.devices}'


def training_cost(workdir: Path, step: int) -> TrainingCost | None:
  """Returns the cost of the first `step` updates of a run.

  It is None for weights alone, or if an earlier version began the run.

  Raises:
    UserError: `run.json` or `config.json` is damaged.
  """
  about = read_record(workdir)
  if 'flops_per_update' not in about:
    return None
  sessions = [session['devices'] for session in _sessions_that_train(about)]
  tokens = files.read_sealed(workdir / CONFIG, 'the run\'s config')['train']['tokens_per_batch']
  # Updates without a speed, such as the first of a process, take the mean time of the others.
  seconds = timed = before = 0
  for line in _lines(workdir / METRICS):
    if 'train/fill' not in line or line['step'] > step:
      continue
    if line.get('tokens_per_second'):
      updates = line['step'] - before
      seconds += line['train/fill'] * updates * tokens / line['tokens_per_second']
      timed += updates
    before = line['step']
  last, counts = sessions[-1], {devices['count'] for devices in sessions}
  hours = seconds * step / timed * last['count'] / 3600 if timed and len(counts) == 1 else None
  return TrainingCost(step * about['flops_per_update'], hours, f'{last["count"]} {last["kind"]}')


def record_cost(workdir: Path, step: int):
  """Logs what the first `step` updates cost, and writes it to `run.json`, unless that has it."""
  cost, about = training_cost(workdir, step), read_record(workdir)
  if cost is not None and about.get('cost', {}).get('flops') != cost.flops:
    logging.info('%s', cost)
    files.write_sealed(workdir / RUN, about | {'cost': cost._asdict()})


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
  """Yields the readable lines of metrics; the run has warned of damaged ones."""
  for line in path.read_bytes().splitlines() if path.exists() else ():
    with contextlib.suppress(ValueError):
      values = json.loads(line)
      if isinstance(values, dict) and isinstance(values.get('step'), int):
        yield values
