"""Times work that a device runs asynchronously."""

import statistics
import time
from collections.abc import Callable

_WARM_UP = 3
_BLOCKS = 5
_BLOCK_SECONDS = 0.5


def time_in_blocks(
  start: Callable[[], None], wait: Callable[[], None], most: int = 50
) -> dict[str, float]:
  """Times training steps that are started one after another, and waits only after each block.

  Args:
    start: starts a training step.
    wait: waits until the device has finished all steps.
    most: the maximum number of steps in a block.

  Returns:
    Seconds per step: the median, the minimum and the maximum over the blocks.
  """

  def block(count):
    started = time.perf_counter()
    for _ in range(count):
      start()
    wait()
    return (time.perf_counter() - started) / count

  block(_WARM_UP)
  count = max(1, min(most, int(_BLOCK_SECONDS / block(1))))
  times = [block(count) for _ in range(_BLOCKS)]
  return {'seconds': statistics.median(times), 'least': min(times), 'most': max(times)}
