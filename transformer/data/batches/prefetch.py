"""Results that a thread computes before they are needed."""

import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor


def prefetch(function: Callable, items: Iterable, ahead: int) -> Iterator:
  """Yields `function(item)` for each item, in order, computed by one thread up to `ahead` ahead.

  An exception of `function` is raised in place of its result. The thread stops after its
  current item when the generator is closed.
  """
  thread, results = ThreadPoolExecutor(1, 'prefetch'), collections.deque()
  try:
    for item in items:
      results.append(thread.submit(function, item))
      if len(results) > ahead:
        yield results.popleft().result()
    while results:
      yield results.popleft().result()
  finally:
    thread.shutdown(wait=False, cancel_futures=True)
