"""The interface of a corpus: sentence pairs at random access."""

import operator
from pathlib import Path
from typing import Protocol, SupportsIndex, overload

# Subfolder of a corpus's `folder` for files that are computed from the corpus.
FOLDER = 'encoded'


class Corpus(Protocol):
  """Sentence pairs by index; can be pickled, and read by many threads at a time.

  Attributes:
    name: a name for people, such as `wmt14_translate/de-en:train`.
    fingerprint: SHA-256 in hexadecimal, the same on every machine. For files it covers the
      whole text. For a TFDS set it covers only the metadata.
    notes: sentences about what was changed while reading, and about what looks odd.
    folder: the folder of the corpus, for files that are computed from it.
  """

  name: str
  fingerprint: str
  notes: tuple[str, ...]
  folder: Path

  def __len__(self) -> int:
    """Returns the number of pairs, at least one."""

  @overload
  def __getitem__(self, index: SupportsIndex) -> tuple[str, str]:
    """Returns the source and the target sentence of a pair in [0, len)."""

  @overload
  def __getitem__(self, index: slice) -> list[tuple[str, str]]:
    """Returns consecutive pairs, which is faster than one by one."""


def check_index(index: SupportsIndex, length: int) -> int:
  """Returns `index` as an int.

  Raises:
    IndexError: `index` is not in [0, length). A `for` loop over a corpus ends at this error.
  """
  index = operator.index(index)
  if not 0 <= index < length:
    raise IndexError(f'index must lie in [0, {length}); got {index}')
  return index


def check_slice(index: slice, length: int) -> tuple[int, int]:
  """Returns the start and the stop of a slice, in [0, length].

  Raises:
    ValueError: the step of the slice is not 1.
  """
  start, stop, step = index.indices(length)
  if step != 1:
    raise ValueError(f'the slice of a corpus must have a step of 1; got a step of {step}')
  return start, max(start, stop)
