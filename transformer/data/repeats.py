"""Equal things found among millions by 64-bit keys of them, which take no text to hold.

That two different things among 40 million share a key has a chance of 1 in 20,000,
and would then count one pair too many.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer.data.shuffling import mix

_CHUNK = 1 << 20  # keys looked up together


class Groups(NamedTuple):
  """Things that have a key in common with others.

  Attributes:
    groups: how many keys several things have.
    members: how many things have such a key.
    largest: where the members of the largest groups lie, an array each.
  """

  groups: int
  members: int
  largest: list[np.ndarray]


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


def groups(keys: np.ndarray, most: int) -> Groups:
  """Finds keys that several things have; takes some 25 bytes a key while it runs.

  Args:
    keys: uint64 [things].
    most: how many of the largest groups to show; of equals those that begin first.

  Returns:
    `Groups`.
  """
  order = np.argsort(keys, kind='stable')
  ordered = keys[order]
  # Where one of several begins, and where one after the last of them is.
  same = np.concatenate([[False], ordered[1:] == ordered[:-1], [False]])
  starts, stops = (np.flatnonzero(each) for each in (~same[:-1] & same[1:], same[:-1] & ~same[1:]))
  sizes = stops + 1 - starts
  largest = np.lexsort((order[starts], -sizes))[:most]
  return Groups(len(sizes), int(sizes.sum()),
                [order[starts[i]:starts[i] + sizes[i]] for i in largest])


def first_places(few: np.ndarray, many: np.ndarray) -> np.ndarray:
  """Where each of a few keys comes first among many, which are neither sorted nor copied.

  Args:
    few: uint64 [keys].
    many: uint64 [things].

  Returns:
    int64 [keys], −1 for a key that is not there.
  """
  known, which = np.unique(few, return_inverse=True)
  places = np.full(len(known), -1)
  for first in range(0, len(many) if len(known) else 0, _CHUNK):
    chunk = many[first:first + _CHUNK]
    found = np.minimum(np.searchsorted(known, chunk), len(known) - 1)
    here = np.flatnonzero(known[found] == chunk)[::-1]  # The first is written last, and stays.
    here = here[places[found[here]] < 0]
    places[found[here]] = first + here
  return places[which]
