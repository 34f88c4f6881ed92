"""The engine fills up batches, and finishes every sentence once."""

import signal
import threading
import time

import numpy as np
import pytest

from transformer.decoding.continuous_batching import SearchBatch, search_batches

SIZE = 5
# How long each sentence's search takes.
LENGTHS = np.random.default_rng(0).integers(1, 13, 1000)


def batches(seed, count):
  """Returns batches of two buckets that have not begun."""
  rng, numbers = np.random.default_rng(seed), iter(range(1000))
  return [
    SearchBatch(
      ('short', 'long')[i % 2],
      0,
      {row: next(numbers) for row in range(rng.integers(1, SIZE + 1))},
    )
    for i in range(count)
  ]


class Numbers:
  """Sentences whose state is their numbers, and the tokens so far."""

  def __init__(self, refills, slow):
    self.computed = []
    self._refills, self._slow = refills, slow

  def search(self, batch, pause_for_refill):
    t = batch.t
    if batch.state is None:
      numbers = np.array([batch.rows.get(row, -1) for row in range(SIZE)])
      tokens = np.int32(0)
    else:
      numbers, tokens = batch.state
    assert len(numbers) == SIZE and t == tokens and pause_for_refill == self._refills
    self.computed.append(
      (
        batch.bucket,
        t,
        [
          number
          for number in dict.fromkeys(numbers.tolist())
          if number >= 0 and LENGTHS[number] > t
        ],
      )
    )
    if self._slow:  # Threads come back in another order than they went.
      time.sleep(len(self.computed) % 4 * 1e-3)
    unfinished, finished = {}, {}
    for row, index in batch.rows.items():
      assert numbers[row] == index
      if LENGTHS[index] <= t + 4:
        finished[index] = None
      else:
        unfinished[row] = index
    state = [numbers, np.int32(t + 4)]
    return SearchBatch(batch.bucket, t + 4, unfinished, state), finished


def search(new, threads, refills=True, slow=False):
  """Returns the sentences in the order in which they were finished, and each computed batch."""
  sentences = Numbers(refills, slow)
  finished = []
  for results in search_batches(new, sentences.search, SIZE, threads, refills):
    finished += results
  return finished, sentences.computed


@pytest.mark.parametrize(('threads', 'refills'), [(1, False), (1, True), (7, True)])
@pytest.mark.parametrize('count', [0, 1, 2, 40])
def test_every_sentence_is_finished_once_in_its_bucket(threads, refills, count):
  new = batches(count, count)
  finished, computed = search(new, threads, refills)
  buckets = {number: batch.bucket for batch in new for number in batch.rows.values()}
  assert sorted(finished) == sorted(buckets)
  assert all(
    buckets[number] == bucket for bucket, _, numbers in computed for number in numbers
  )


def test_without_refills_one_batch_is_searched_to_its_end_after_the_other():
  new = batches(4, 9)
  _, computed = search(new, 1, refills=False)
  order = []
  for batch in reversed(new):
    longest = max(LENGTHS[number] for number in batch.rows.values())
    order += [(batch.bucket, t) for t in range(0, longest, 4)]
  assert [(bucket, t) for bucket, t, _ in computed] == order


@pytest.mark.parametrize('threads', [1, 3])
def test_batches_are_filled_up_and_few_sentences_wait(threads):
  _, computed = search(batches(2, 60), threads, slow=threads > 1)
  for bucket in ('short', 'long'):
    sizes = [
      len(numbers) for other, t, numbers in computed if bucket == other and t > 0
    ]
    # Only the last batches, which nothing can join, are as empty as the first ones would become.
    assert np.mean([size >= 0.75 * SIZE for size in sizes]) > 0.6
  if threads == 1:
    going = 0
    for _, t, numbers in computed:
      going += len(numbers) if t == 0 else 0
      going -= sum(LENGTHS[number] <= t + 4 for number in numbers)
      assert going <= 6 * SIZE


def test_the_last_batches_begin_and_threads_work_side_by_side():
  together, begun = threading.Barrier(3, timeout=60), []

  def finish(batch, pause_for_refill):
    begun.append(batch.bucket)
    if batch.bucket >= 4:
      together.wait()
    return batch._replace(rows={}), {}

  new = [SearchBatch(number, 0, {0: 0}) for number in range(7)]
  assert len(list(search_batches(new, finish, 1, 3, refills=True))) == 7
  assert sorted(begun[:3]) == [4, 5, 6] and sorted(begun) == list(range(7))


@pytest.mark.parametrize('error', [FloatingPointError, KeyboardInterrupt])
def test_an_error_and_ctrl_c_end_the_work_after_the_batches_in_hand(
  default_signal_handlers, error
):
  begun = []

  def finish(batch, pause_for_refill):
    begun.append(batch)
    if batch.bucket == 48 and error is KeyboardInterrupt:
      signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    elif batch.bucket == 48:
      raise error
    time.sleep(1e-2)
    return batch._replace(rows={}), {}

  with pytest.raises(error):
    list(
      search_batches(
        [SearchBatch(number, 0, {0: 0}) for number in range(50)], finish, 1, 3, True
      )
    )
  assert len(begun) < 20
