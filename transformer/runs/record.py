"""The record of a run, `run.json`: code, settings and machines behind its numbers."""

import os
import platform
import sys
import time
from pathlib import Path

import jax
from absl import logging

from transformer import files
from transformer.runs.run_directory import FORMAT, RUN, commit, read_record, versions
from transformer.system.jax_backend import check_switches, recorded_switches
from transformer.system.machine import usable_cores


def write_record(workdir: Path, reproducible: bool, **facts):
  """Writes `run.json` of a new run: the given facts, and those about this process."""
  # `add_session` appends to `resumed`.
  record = {'format': FORMAT, **_session(reproducible), **facts, 'resumed': []}
  files.write_sealed(workdir / RUN, record)


def add_session(
  workdir: Path,
  reproducible: bool,
  changes: dict,
  trains: bool,
  digests: dict[str, str],
):
  """Adds this process to `run.json` of an existing run; `trains` is False if it only evaluates.

  `digests` has each plugin's current digest. Raises `UserError` if JAX's switches differ from the
  switches of the last process that trained. Logs a warning for each plugin whose digest has changed
  since that process.
  """
  record = read_record(workdir)
  last = [record, *(past for past in record['resumed'] if past['trains'])][-1]
  if trains:
    check_switches(last['jax'])
    for spec, digest in digests.items():
      if last['plugins'].get(spec, digest) != digest:
        logging.warning(
          'the module of %s has changed since the last training session, so the run may differ '
          'from an uninterrupted one',
          spec,
        )
  facts = {'plugins': digests, 'changed': changes, 'trains': trains}
  record['resumed'].append({**_session(reproducible), **facts})
  files.write_sealed(workdir / RUN, record)


def _session(reproducible: bool) -> dict:
  """Returns the time, command, commit, package versions and devices of this process."""
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
