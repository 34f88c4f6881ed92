"""The pool fills up batches, and finishes every sentence once."""

import signal
import threading
import time
from typing import NamedTuple

import numpy as np
import pytest

from transformer.decoding.pool import Part, Pool

SIZE = 5


class New(NamedTuple):
  """A batch that has not begun: its kind, and how long the search for each sentence takes."""

  kind: str
  lengths: dict[int, int]


def batches(seed, count, kinds=('short', 'long')):
  rng, numbers = np.random.default_rng(seed), iter(range(10_000))
  return [New(kinds[i % len(kinds)], {next(numbers): int(rng.integers(1, 13))
                                      for _ in range(rng.integers(1, SIZE + 1))})
          for i in range(count)]


def search(new, threads, slow=False):
  """Returns the length of each finished search, and the kind, t and sentences of each batch."""
  finished, computed, lock = {}, [], threading.Lock()

  def compute(batch):
    if isinstance(batch, New):
      ids = [*batch.lengths] + [-1] * (SIZE - len(batch.lengths))
      batch = Part(batch.kind, 0, [*batch.lengths], [np.array(ids)],
                   [np.int32(0), np.array([batch.lengths.get(i, 1) for i in ids])])
    (ids,), (t, lengths) = batch.sources, batch.state
    assert len(ids) == len(lengths) == SIZE and t == batch.t
    assert list(ids[:len(batch.chosen)]) == list(batch.chosen)
    with lock:
      computed.append((batch.kind, batch.t, batch.chosen))
      pause = len(computed) % 4 * 1e-3
      for row, number in enumerate(batch.chosen):
        if lengths[row] <= t + 4:
          assert number not in finished
          finished[number] = int(lengths[row])
    if slow:  # Threads come back in another order than they went.
      time.sleep(pause)
    rows = [row for row in range(len(batch.chosen)) if lengths[row] > t + 4]
    left = Part(batch.kind, batch.t + 4, [], [ids], [np.int32(t + 4), lengths])
    return left.with_rows(rows, [batch.chosen[row] for row in rows]) if rows else None

  Pool(new, lambda batch: batch.kind, SIZE).run(compute, threads)
  return finished, computed


@pytest.mark.parametrize('threads', [1, 2, 7])
@pytest.mark.parametrize('count', [0, 1, 2, 40])
def test_every_sentence_is_finished_once_among_its_own_kind(threads, count):
  new = batches(count, count)
  finished, computed = search(new, threads)
  kinds = {number: batch.kind for batch in new for number in batch.lengths}
  assert finished == {number: length for batch in new for number, length in batch.lengths.items()}
  assert all(kinds[number] == kind for kind, _, chosen in computed for number in chosen)


@pytest.mark.parametrize('threads', [1, 3])
@pytest.mark.parametrize('seed', range(5))
def test_all_batches_but_one_are_full_at_each_place(threads, seed):
  _, computed = search(batches(seed, 60), threads, slow=threads > 1)
  for place in {(kind, t) for kind, t, _ in computed if t}:
    sizes = [len(chosen) for *each, chosen in computed if tuple(each) == place]
    assert sum(size < SIZE for size in sizes) <= 1
    assert len(sizes) > 1 or place[1] == 8


def test_what_waits_is_bounded():
  _, computed = search(batches(5, 80, kinds=('short',)), 1)
  begun = finished = 0
  lengths = {number: length for batch in batches(5, 80) for number, length in batch.lengths.items()}
  for _, t, chosen in computed:
    begun += len(chosen) if t == 0 else 0
    finished += sum(lengths[number] <= t + 4 for number in chosen)
    assert begun - finished <= 3 * SIZE


def test_a_batch_is_alone_once_nobody_can_join_it():
  seen = []

  def compute(batch):
    kind, t = (batch.kind, batch.t) if isinstance(batch, Part) else (batch, 0)
    seen.append((kind, t, pool.is_alone(kind)))
    return Part(kind, t + 4, [7], [np.array([7] * SIZE)], []) if t < 8 else None

  pool = Pool(['few', 'many', 'many'], lambda batch: batch, SIZE)
  pool.run(compute, 1)
  assert [alone for kind, _, alone in seen if kind == 'few'] == [True] * 3
  assert [alone for kind, _, alone in seen if kind == 'many'] == [False, False, True, True]


def test_the_last_batches_begin_and_threads_work_side_by_side():
  together, begun = threading.Barrier(3, timeout=60), []

  def compute(batch):
    begun.append(batch)
    if batch >= 4:
      together.wait()

  Pool(range(7), lambda batch: 'kind', SIZE).run(compute, 3)
  assert sorted(begun[:3]) == [4, 5, 6] and sorted(begun) == list(range(7))


def test_an_error_is_raised_and_other_batches_are_left_out():
  begun = []

  def compute(batch):
    begun.append(batch)
    if batch == 49:
      raise FloatingPointError(batch)
    time.sleep(1e-2)

  with pytest.raises(FloatingPointError):
    Pool(range(50), lambda batch: 'kind', SIZE).run(compute, 3)
  assert len(begun) < 9


def test_ctrl_c_ends_the_work_after_the_batches_in_hand():
  started, lock = [], threading.Lock()

  def compute(batch):
    with lock:
      started.append(batch)
      number = len(started)
    if number == 3:
      signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    time.sleep(0.05)

  new = [New('short', {i: 1}) for i in range(200)]
  # What a shell runs in its background, such as all of the tests, ignores Ctrl-C.
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  try:
    with pytest.raises(KeyboardInterrupt):
      Pool(new, lambda batch: batch.kind, SIZE).run(compute, 2)
  finally:
    signal.signal(signal.SIGINT, before)
  assert len(started) < 20
