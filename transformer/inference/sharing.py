"""Batches that several devices compute side by side, each device a whole batch."""

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax


def share(batches: Sequence[Any], compute: Callable[[Any, Any], None],
          devices: Sequence[jax.Device], params: Any):
  """Computes each batch on a device that is free, in a thread for each device.

  Args:
    batches: the last ones begin, so they should be the longest.
    compute: called with a batch, and with the parameters on one device.
    devices: at least one.
    params: a pytree of arrays on any devices.

  Raises:
    Exception: what `compute` has raised; batches that have not begun are left out.
  """
  free: queue.Queue = queue.Queue()
  for device in devices[:max(len(batches), 1)]:
    free.put(jax.device_put(params, device))

  def compute_on_free_device(batch):
    copy = free.get()
    try:
      compute(batch, copy)
    finally:
      free.put(copy)

  with ThreadPoolExecutor(free.qsize()) as pool:
    list(pool.map(compute_on_free_device, reversed(batches)))
