"""Finds repeated pairs by 64-bit keys, without holding their text.

Among 40 million different pairs, the chance that any two share a key is 1 in 20,000. If two
do, one of them is wrongly taken for a repetition.
"""

import numpy as np

from transformer.data.batches.shuffling import mix


def keys_of_pairs(source: np.ndarray, target: np.ndarray) -> np.ndarray:
  """Returns a key of each pair from the keys of its two sides, whose order matters."""
  return mix(mix(source) + target)


def repeats(keys: np.ndarray) -> np.ndarray:
  """Returns the indices of keys that equal an earlier key, int64, ascending.

  Needs some 25 bytes a key while it runs.

  Args:
    keys: uint64 [keys].
  """
  order = np.argsort(keys, kind='stable')
  ordered = keys[order]
  return np.sort(order[1:][ordered[1:] == ordered[:-1]])
