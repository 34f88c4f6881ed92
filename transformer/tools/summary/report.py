"""The summary of a job, as JSON data and as text."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from transformer.tools.summary.config_warnings import config_warnings
from transformer.tools.summary.job import Job
from transformer.tools.summary.memory import FORMULA, needed_bytes
from transformer.tools.summary.speed import CHIPS, step_time

_EXTRA_CHECKPOINTS = 2  # The best checkpoint, and one being written.
_FITS = {True: 'fits', False: 'too small', None: '-'}


def summarize(job: Job, workdir: Path, chip: str | None = None) -> dict[str, Any]:
  """Returns the summary of a job as JSON data; None means unknown.

  Args:
    workdir: the directory of the run, on the disk that stores the checkpoints.
    chip: a name in chips.json; None compares all chips.
  """
  train = job.config.train
  checkpoints = train.keep + _EXTRA_CHECKPOINTS
  disk = job.state_bytes and checkpoints * job.state_bytes
  free = _free(workdir)
  facts = {'parameters': job.parameters}
  if job.dataset:
    facts |= dataclasses.asdict(job.dataset)
    facts['epochs'] = round(train.steps / job.dataset.steps_per_epoch, 1)
  facts |= {
    'steps': train.steps,
    'tokens_per_batch': train.tokens_per_batch,
    'devices': job.devices,
    'rows_per_device': job.rows_per_device,
    'tokens_per_device': job.tokens_per_device,
    'memory_per_device_bytes': needed_bytes(job),
    'memory_is_from': FORMULA,
    'checkpoints': checkpoints,
    'checkpoints_disk_bytes': disk,
    'free_disk_bytes': free,
  }

  seconds = None
  if chip:
    seconds, _ = step_time(job, chip)
  return {
    'job': facts,
    'chips': [_on_chip(job, name) for name in ([chip] if chip else CHIPS)],
    'warnings': config_warnings(job, seconds, is_full=disk is not None and disk > free),
  }


def _free(workdir: Path) -> int:
  """Returns the free bytes on the disk of a directory, which may not exist yet."""
  folder = workdir.absolute()
  while not folder.is_dir():
    folder = folder.parent
  return shutil.disk_usage(folder).free


def _on_chip(job: Job, chip: str) -> dict[str, Any]:
  """Returns the fit and time of a job on a chip."""
  seconds, basis = step_time(job, chip)
  need = needed_bytes(job)
  size = CHIPS[chip]['memory']
  return {
    'chip': chip,
    'fits': need <= size if need and size else None,
    'seconds': seconds and seconds * job.config.train.steps,
    'time_is_from': basis,
  }


def as_text(summary: dict[str, Any]) -> list[str]:
  """Returns the output of `summarize` as lines of text; unknown facts are omitted."""
  lines = []
  for name, value in summary['job'].items():
    label = name.removesuffix('_bytes').replace('_', ' ')
    if name.endswith('_bytes') and value:
      value = f'{value / 1e9:,.2f} GB'
    elif isinstance(value, (int, float)):
      value = f'{value:,}'
    if value is not None:
      lines.append(f'{label:<20}{value}')

  lines += ['', 'chip        memory      training time']
  for row in summary['chips']:
    time = 'unknown'
    if row['seconds']:
      time = _hours(row['seconds'])
    fits = _FITS[row['fits']]
    lines.append(f'{row["chip"]:<12}{fits:<12}{time:<16}{row["time_is_from"]}')

  lines.append('')
  for warning in summary['warnings']:
    lines.append(f'warning: {warning["finding"]}')
    if warning['usual']:
      lines.append(f'  usual: {warning["usual"]}')
  return lines if summary['warnings'] else [*lines, 'no questionable settings']


def _hours(seconds: float) -> str:
  """Returns a time in hours, or in minutes if it is short."""
  if seconds < 3600:
    return f'{seconds / 60:,.1f} minutes'
  return f'{seconds / 3600:,.2f} hours'
