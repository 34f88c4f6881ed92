"""The cost of training: FLOPs, as in the paper's table 2, and device hours."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer.config import Config
from transformer.runs.metrics_file import read_metrics
from transformer.runs.run_directory import METRICS


def cost_of(workdir: Path, record: Mapping[str, Any], config: Config) -> str:
  """Returns the cost of all training steps in metrics.jsonl; '' if unknown.

  Device hours are the time of training steps times the number of devices, without compilation,
  evaluation and checkpointing. They are omitted if no line has a speed, or if the number of devices
  has changed.
  """
  lines = []
  for line in read_metrics(workdir / METRICS):
    if 'train/fill' in line:
      lines.append(line)
  flops_per_step = record.get('flops_per_step')
  if not lines or flops_per_step is None:
    return ''
  steps = lines[-1]['step']
  cost = f'{steps * flops_per_step:.2e} FLOPs'
  sessions = [session for session in record['resumed'] if session['trains']]
  devices = [session['devices'] for session in (record, *sessions)]
  count = devices[-1]['count']
  seconds = _seconds(lines, config.train.tokens_per_batch)
  if seconds is not None and all(device['count'] == count for device in devices):
    hours = seconds * count / 3600
    cost = f'{cost} in {hours:.3g} device hours'
  return f'{cost} on {count} × {devices[-1]["kind"]}'


def _seconds(lines: Sequence[Mapping[str, Any]], tokens_per_batch: int) -> float | None:
  """Returns the seconds of the training steps in `lines`; None if no line has a speed.

  Steps without a speed, such as the first steps of a process, count with the mean time of the
  others.
  """
  seconds = 0.0
  timed = 0
  last_step = 0
  for line in lines:
    updates = line['step'] - last_step
    last_step = line['step']
    if line.get('tokens_per_second'):
      tokens = line['train/fill'] * updates * tokens_per_batch
      seconds += tokens / line['tokens_per_second']
      timed += updates
  return seconds * last_step / timed if timed else None
