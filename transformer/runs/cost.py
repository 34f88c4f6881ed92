"""The cost of training a run, as in table 2 of the paper: floating-point operations and hours."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from transformer import files
from transformer.runs.run_directory import CONFIG, METRICS, RUN, sessions_that_train


class TrainingCost(NamedTuple):
  """The cost of a run up to a checkpoint.

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
  about = files.read_sealed(workdir / RUN, 'the record of the run')
  if 'flops_per_update' not in about:
    return None
  sessions = [session['devices'] for session in sessions_that_train(about)]
  devices = sessions[-1]
  tokens = files.read_sealed(workdir / CONFIG, 'the run\'s config')['train']['tokens_per_batch']
  seconds = _seconds(workdir / METRICS, tokens, step)
  return TrainingCost(step * about['flops_per_update'],
                      None if seconds is None or len({devices['count'] for devices in sessions}) > 1
                      else seconds * devices['count'] / 3600,
                      f'{devices["count"]} {devices["kind"]}')


def _seconds(path: Path, tokens_per_batch: int, step: int) -> float | None:
  """Returns the time of the first `step` updates, from the speeds in the lines of metrics.

  Updates without a speed, such as the first of a process, take the mean time of the others.
  """
  seconds = timed = before = 0
  for line in _lines(path):
    if 'train/fill' not in line or line['step'] > step:
      continue
    if line.get('tokens_per_second'):
      updates = line['step'] - before
      seconds += line['train/fill'] * updates * tokens_per_batch / line['tokens_per_second']
      timed += updates
    before = line['step']
  return seconds * step / timed if timed else None


def _lines(path: Path) -> list[Mapping[str, Any]]:
  """Returns the readable lines of metrics; none if there is no file."""
  lines = []
  for line in path.read_bytes().splitlines() if path.exists() else ():
    try:
      lines.append(json.loads(line))
    except ValueError:
      continue  # A damaged line; the run has warned of it.
  return [line for line in lines if isinstance(line, dict) and isinstance(line.get('step'), int)]
