"""Equal things found among millions by 64-bit keys of them, which take no text to hold.

That two different things among 40 million share a key has a chance of 1 in 20,000,
and would then count one pair too many.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from transformer.data.shuffling import mix


def keys_of(lines: Sequence[str]) -> np.ndarray:
  """A key of each line, uint64 [lines]; equal lines have equal keys, on every machine."""
  digests = (hashlib.blake2b(line.encode('utf-8', 'surrogatepass'), digest_size=8).digest()
             for line in lines)
  return np.frombuffer(b''.join(digests), '<u8').astype(np.uint64)


def keys_of_pairs(source: np.ndarray, target: np.ndarray) -> np.ndarray:
  """A key of each pair, from the keys of its two sides; which side is which matters."""
  return mix(mix(source) + target)


def repeats(keys: np.ndarray) -> np.ndarray:
  """Finds what is there already; takes some 25 bytes a key while it runs.

  Args:
    keys: uint64 [things].

  Returns:
    int64: where those lie that equal an earlier one, ascending.
  """
  order = np.argsort(keys, kind='stable')
  ordered = keys[order]
  return np.sort(order[1:][ordered[1:] == ordered[:-1]])
