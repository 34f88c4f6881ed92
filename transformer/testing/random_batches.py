"""Batches of random sentence pairs; all sizes are distinct primes."""

from collections.abc import Sequence

import numpy as np

from transformer.data.batch import EOS_ID, PAD_ID, Batch
from transformer.training.objective import shift_right

B = 3  # rows in a batch
S = 19  # source positions
T = 23  # target positions
W = 5  # hypotheses of a search
N = 37  # target vocabulary size; source vocabulary size if embeddings are shared
SOURCE_N = 41  # source vocabulary size if embeddings are not shared
# The first token id that is not reserved.
FIRST = 4

Pair = tuple[np.ndarray, np.ndarray]


def random_pair(source_length: int, target_length: int, seed: int) -> Pair:
  """Returns the tokens of a random sentence pair; both sentences end with `EOS_ID`."""
  rng = np.random.default_rng(seed)
  source = rng.integers(FIRST, N, source_length)
  target = rng.integers(FIRST, N, target_length)
  source[-1] = EOS_ID
  target[-1] = EOS_ID
  return source, target


def pack(
  rows: Sequence[Sequence[Pair]], source_length: int = S, target_length: int = T
) -> Batch:
  """Returns a batch with the pairs of each row packed one after another, then padding."""
  sources = [[source for source, _ in row] for row in rows]
  targets = [[target for _, target in row] for row in rows]
  return Batch(*_side(sources, source_length), *_side(targets, target_length))


def _side(rows, length):
  """Returns the tokens, segments and positions of one side."""
  tokens = np.full((len(rows), length), PAD_ID, np.int32)
  segments = np.zeros_like(tokens)
  positions = np.zeros_like(tokens)
  for row, sentences in enumerate(rows):
    start = 0
    for segment, sentence in enumerate(sentences, 1):
      place = slice(start, start + len(sentence))
      tokens[row, place] = sentence
      segments[row, place] = segment
      positions[row, place] = np.arange(len(sentence))
      start = place.stop
  return tokens, segments, positions


def inputs(batch: Batch) -> tuple[np.ndarray, ...]:
  """Returns the model arguments for a batch; the targets are shifted right."""
  shifted_BT = shift_right(batch.target_tokens, batch.target_positions)
  batch = batch._replace(target_tokens=np.asarray(shifted_BT))
  return tuple(batch.arrays().values())


def full_batch() -> Batch:
  """Returns a batch of B rows of two pairs, with padding at the end of both sides."""
  rows = [
    [random_pair(5, 7, 0), random_pair(11, 13, 1)],
    [random_pair(7, 11, 2), random_pair(7, 5, 3)],
    [random_pair(3, 2, 4), random_pair(13, 17, 5)],
  ]
  return pack(rows)


def teacher_forced_inputs(
  sources: Sequence[np.ndarray], inputs_BT: np.ndarray
) -> tuple[np.ndarray, ...]:
  """Returns the model arguments for one source per row and given decoder inputs."""
  pairs = zip(sources, inputs_BT, strict=True)
  batch = pack([[pair] for pair in pairs], target_length=inputs_BT.shape[1])
  return tuple(batch.arrays().values())
