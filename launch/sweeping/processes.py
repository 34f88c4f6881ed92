"""Processes of a sweep: how they stop, end with their parent, and share a machine."""

import os
import signal
from collections.abc import Collection, Mapping, Sequence

from launch.gpus import visible_gpus
from transformer.training.preemption import EXIT_STATUS, SIGNALS

_MEMORY = 0.9  # of a GPU, for all that share it


class Stop:
  """From when it is made, the first signal is kept, and the second ends the process at once."""

  def __init__(self):
    self.requested: str | None = None
    for number in SIGNALS:
      signal.signal(number, self._handle)

  def _handle(self, number, frame):
    del frame
    if self.requested:
      os._exit(EXIT_STATUS)  # On Linux the processes that it started are then asked to stop.
    self.requested = signal.Signals(number).name


def share(worker: int, workers: int, cores: Collection[int],
          environment: Mapping[str, str]) -> tuple[set[int], dict[str, str]]:
  """What of a machine is for one of several workers.

  Args:
    worker: its number, from 0.
    workers: how many there are.
    cores: the cores that they may use.
    environment: what they are started with.

  Returns:
    Its cores, and what else its environment is to hold: with NVIDIA GPUs, its part of them, or
    its part of the memory of one.
  """
  changes = {}
  gpus = visible_gpus(environment)
  if gpus:
    changes['CUDA_VISIBLE_DEVICES'] = ','.join(_part(worker, workers, gpus))
    sharers = -(-workers // len(gpus))
    if sharers > 1 and 'XLA_PYTHON_CLIENT_MEM_FRACTION' not in environment:
      changes['XLA_PYTHON_CLIENT_MEM_FRACTION'] = f'{_MEMORY / sharers:.3f}'
  return set(_part(worker, workers, sorted(cores))), changes


def _part(worker: int, workers: int, things: Sequence) -> Sequence:
  """A worker's own part of things, or one that it shares where there are more workers."""
  if workers > len(things):
    return [things[worker % len(things)]]
  return things[worker * len(things) // workers:(worker + 1) * len(things) // workers]

