"""The pool fills up batches, and finishes every sentence once."""

import signal
import threading
import time

import numpy as np
import pytest

from transformer.decoding.pool import Part, Pool

SIZE = 5
LENGTHS = np.random.default_rng(0).integers(1, 13, 1000)  # How long each sentence's search takes.


def batches(seed, count, kinds=('short', 'long')):
  """Returns batches that have not begun."""
  rng, numbers = np.random.default_rng(seed), iter(range(1000))
  return [Part(kinds[i % len(kinds)], 0, [next(numbers) for _ in range(rng.integers(1, SIZE + 1))])
          for i in range(count)]


def search(new, threads, slow=False):
  """Returns the sentences in the order in which they were finished, and each computed part."""
  finished, computed, lock = [], [], threading.Lock()

  def compute(part):
    ids = part.state
    if part.state is None:
      ids = [np.array([*part.chosen] + [-1] * (SIZE - len(part.chosen))), np.int32(0)]
    numbers, t = ids
    assert len(numbers) == SIZE and t == part.t
    assert list(numbers[:len(part.chosen)]) == list(part.chosen)
    going = [row for row, number in enumerate(part.chosen) if LENGTHS[number] > t + 4]
    with lock:
      computed.append(part)
      pause = len(computed) % 4 * 1e-3
      finished.extend(number for row, number in enumerate(part.chosen) if row not in going)
    if slow:  # Threads come back in another order than they went.
      time.sleep(pause)
    left = Part(part.kind, part.t + 4, [], [numbers, np.int32(t + 4)])
    return left.with_rows(going, [part.chosen[row] for row in going]) if going else None

  Pool(new, SIZE).run(compute, threads)
  return finished, computed


@pytest.mark.parametrize('threads', [0, 1, 7])
@pytest.mark.parametrize('count', [0, 1, 2, 40])
def test_every_sentence_is_finished_once_among_its_own_kind(threads, count):
  new = batches(count, count)
  finished, computed = search(new, threads)
  kinds = {number: part.kind for part in new for number in part.chosen}
  assert sorted(finished) == sorted(kinds)
  assert all(kinds[number] == part.kind for part in computed for number in part.chosen)


@pytest.mark.parametrize('threads', [0, 3])
@pytest.mark.parametrize('seed', range(3))
def test_all_batches_but_one_are_full_at_each_place_and_few_wait(threads, seed):
  _, computed = search(batches(seed, 60), threads, slow=threads > 1)
  for place in {(part.kind, part.t) for part in computed if part.t}:
    sizes = [len(part.chosen) for part in computed if (part.kind, part.t) == place]
    assert sum(size < SIZE for size in sizes) <= 1
    assert len(sizes) > 1 or place[1] == 8
  if not threads:
    going = 0
    for part in computed:
      going += len(part.chosen) if part.t == 0 else 0
      going -= sum(LENGTHS[number] <= part.t + 4 for number in part.chosen)
      assert going <= 6 * SIZE


def test_a_batch_is_alone_once_nobody_can_join_it():
  seen = []

  def compute(part):
    seen.append((part.kind, pool.is_alone(part.kind)))
    return Part(part.kind, part.t + 4, [7], [np.array([7] * SIZE)]) if part.t < 8 else None

  pool = Pool([Part(kind, 0, [7]) for kind in ('few', 'many', 'many')], SIZE)
  pool.run(compute, 0)
  assert [alone for kind, alone in seen if kind == 'few'] == [True] * 3
  assert [alone for kind, alone in seen if kind == 'many'] == [False, False, True, True]


def test_the_last_batches_begin_and_threads_work_side_by_side():
  together, begun = threading.Barrier(3, timeout=60), []

  def compute(part):
    begun.append(part.kind)
    if part.kind >= 4:
      together.wait()

  Pool([Part(number, 0, [0]) for number in range(7)], SIZE).run(compute, 3)
  assert sorted(begun[:3]) == [4, 5, 6] and sorted(begun) == list(range(7))


def test_an_error_and_ctrl_c_end_the_work_after_the_batches_in_hand():
  # What a shell runs in its background, such as all of the tests, ignores Ctrl-C.
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  begun = []

  def fail(number):
    raise FloatingPointError(number)

  try:
    for error, end in ((FloatingPointError, fail), (KeyboardInterrupt, lambda number: (
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)))):
      def compute(part, end=end):
        begun.append(part)
        if part.kind == 48:
          end(part.kind)
        time.sleep(1e-2)

      begun.clear()
      with pytest.raises(error):
        Pool([Part(number, 0, [0]) for number in range(50)], SIZE).run(compute, 3)
      assert len(begun) < 20
  finally:
    signal.signal(signal.SIGINT, before)
