"""Results come in order, from one thread that stays a bounded number of items ahead."""

import threading
import time

import pytest

from transformer.data.encoding import prefetch


@pytest.mark.parametrize('ahead', [0, 7, 100])
@pytest.mark.parametrize('count', [0, 1, 23])
def test_results_come_in_order(count, ahead):
  assert list(prefetch(lambda item: 3 * item, range(count), ahead)) == [
      3 * item for item in range(count)]


def wait_for(condition):
  deadline = time.monotonic() + 20
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.001)


def test_one_thread_works_a_bounded_number_ahead():
  done, threads = [], set()

  def work(item):
    threads.add(threading.get_ident())
    done.append(item)
    return item

  results = prefetch(work, range(1009), 3)
  time.sleep(0.02)
  assert done == []  # Nothing starts before the first result is wanted.
  for wanted in range(5):
    assert next(results) == wanted
    wait_for(lambda most=wanted + 4: len(done) == most)
    time.sleep(0.02)
    assert done == list(range(wanted + 4))
  assert len(threads) == 1 and threading.get_ident() not in threads
  results.close()


def test_an_exception_comes_in_its_place():
  results = prefetch(lambda item: 1 // (item - 2), range(7), 5)
  assert [next(results), next(results)] == [-1, -1]
  with pytest.raises(ZeroDivisionError):
    next(results)
  assert list(results) == []


def test_a_closed_generator_leaves_the_rest_undone():
  began, release, done = threading.Event(), threading.Event(), []

  def work(item):
    if item == 1:
      began.set()
      assert release.wait(20)
    done.append(item)

  before = set(threading.enumerate())
  results = prefetch(work, range(1009), 5)
  next(results)
  assert began.wait(20)
  results.close()  # Does not wait for the item that is being computed.
  assert done == [0]
  release.set()
  for thread in set(threading.enumerate()) - before:
    thread.join(20)
  assert done == [0, 1]
