"""Times work that a device does while the program goes on."""

import statistics
import time
from collections.abc import Callable

_WARM_UP = 3
_BLOCKS = 5
_BLOCK_SECONDS = 0.5


def time_updates(
  start: Callable[[], None], wait: Callable[[], None], most: int = 50
) -> dict[str, float]:
  """Times updates that are started one after another, and waits only after a block of them.

  Args:
    start: starts an update.
    wait: waits until the device has done all of them.
    most: the largest number of updates in a block.

  Returns:
    Seconds of an update: the median, the smallest and the largest over the blocks.
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
