"""Finds repeated sentences and pairs by 64-bit keys, without holding their text.

Among 40 million different pairs, the chance that any two share a key is 1 in 20,000. If two
do, one of them is wrongly taken for a repetition.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer.data.shuffling import mix

_CHUNK = 1 << 20  # keys looked up together


class Groups(NamedTuple):
  """Groups of indices that share a key.

  Attributes:
    groups: the number of keys that occur several times.
    members: the number of indices in all groups.
    largest: the indices of each of the largest groups.
  """

  groups: int
  members: int
  largest: list[np.ndarray]


def keys_of(lines: Sequence[str]) -> np.ndarray:
  """Returns a key of each line, uint64 [lines], the same on every machine."""
  digests = (hashlib.blake2b(line.encode('utf-8', 'surrogatepass'), digest_size=8).digest()
             for line in lines)
  return np.frombuffer(b''.join(digests), '<u8').astype(np.uint64)


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


def groups(keys: np.ndarray, most: int) -> Groups:
  """Finds the keys that occur several times; needs some 25 bytes a key while it runs.

  Args:
    keys: uint64 [keys].
    most: how many of the largest groups to return; among equals the first come first.
  """
  order = np.argsort(keys, kind='stable')
  ordered = keys[order]
  # The first and the last place of each group in `ordered`.
  same = np.concatenate([[False], ordered[1:] == ordered[:-1], [False]])
  starts, stops = (np.flatnonzero(each) for each in (~same[:-1] & same[1:], same[:-1] & ~same[1:]))
  sizes = stops + 1 - starts
  largest = np.lexsort((order[starts], -sizes))[:most]
  return Groups(len(sizes), int(sizes.sum()),
                [order[starts[i]:starts[i] + sizes[i]] for i in largest])


def first_places(few: np.ndarray, many: np.ndarray) -> np.ndarray:
  """Returns, for each key of `few`, its first index in `many`, or −1; int64 [few].

  Neither sorts nor copies `many`.

  Args:
    few: uint64 [few].
    many: uint64 [many].
  """
  known, which = np.unique(few, return_inverse=True)
  places = np.full(len(known), -1)
  for first in range(0, len(many) if len(known) else 0, _CHUNK):
    chunk = many[first:first + _CHUNK]
    found = np.minimum(np.searchsorted(known, chunk), len(known) - 1)
    # In reverse, so that the first place of a key is written last and stays.
    here = np.flatnonzero(known[found] == chunk)[::-1]
    here = here[places[found[here]] < 0]
    places[found[here]] = first + here
  return places[which]
