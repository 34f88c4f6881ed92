"""Results come in order, from one thread that stays a bounded number of items ahead."""

import threading
import time

import pytest

from transformer.data.encoding import prefetch


@pytest.mark.parametrize(('count', 'ahead'), [(0, 7), (1, 0), (23, 0), (23, 7), (23, 100)])
def test_results_come_in_order(count, ahead):
  assert list(prefetch(lambda item: 3 * item, range(count), ahead)) == [
      3 * item for item in range(count)]


def test_one_thread_works_a_bounded_number_ahead_until_the_generator_is_closed():
  done, threads = [], set()

  def work(item):
    threads.add(threading.get_ident())
    done.append(item)
    return item

  results = prefetch(work, range(1009), 3)
  assert done == []  # Nothing starts before the first result is wanted.
  for wanted in range(5):
    assert next(results) == wanted
    deadline = time.monotonic() + 20
    while len(done) < wanted + 4 and time.monotonic() < deadline:
      time.sleep(0.001)
    assert done == list(range(wanted + 4))
  results.close()
  assert len(done) == 8 and len(threads) == 1 and threading.get_ident() not in threads


def test_an_exception_comes_in_its_place():
  results = prefetch(lambda item: 1 // (item - 2), range(7), 5)
  assert [next(results), next(results)] == [-1, -1]
  with pytest.raises(ZeroDivisionError):
    next(results)
  assert list(results) == []
