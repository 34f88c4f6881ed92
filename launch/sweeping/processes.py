"""The processes of a sweep: how signals stop them, and which part of a machine each may use."""

import contextlib
import math
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from transformer.system.cuda_devices import visible_gpus
from transformer.system.signals import EXIT_STATUS, TWICE_SECONDS, handling

_MEMORY = 0.9  # The part of a GPU's memory that all its workers use together.


@contextlib.contextmanager
def stop_requests() -> Iterator[list[str]]:
  """Yields a list that receives the name of the first signal.

  A second signal ends the process at once, if it comes half a second later or more. On Linux, its
  child processes are then asked to stop.
  """
  requests: list[str] = []
  first = math.inf

  def request(number, frame):
    nonlocal first
    del frame
    if time.monotonic() > first + TWICE_SECONDS:
      os._exit(EXIT_STATUS)
    if not requests:
      first = time.monotonic()
      requests.append(signal.Signals(number).name)

  with handling(request):
    yield requests


def share(worker: int, workers: int, cores: Collection[int],
          environment: Mapping[str, str]) -> tuple[set[int], dict[str, str]]:
  """Returns the cores of one worker, and the variables that give it its part of the GPUs.

  A worker gets one or several GPUs, or a part of one GPU's memory.

  Args:
    worker: its number, from 0.
    workers: the number of workers.
    cores: the cores for all workers.
    environment: the environment of all workers.
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
  """Returns a worker's part of things; with more workers than things, workers share a thing."""
  if workers > len(things):
    return [things[worker % len(things)]]
  return things[worker * len(things) // workers:(worker + 1) * len(things) // workers]
