"""`.npy` files that grow while they are written, and sentences read from them.

NumPy can map such files into memory, which takes half the time of `TokenFile`. But then whole
files become resident memory of the process within ten batches. For WMT these are several
gigabytes.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from transformer.data.encoding import Sentences


@contextlib.contextmanager
def appending(path: Path, dtype: np.dtype) -> Iterator:
  """Yields a function that appends arrays to a one-dimensional `.npy` file."""
  with path.open('wb') as file:
    def write_header(length):
      np.lib.format.write_array_header_1_0(
          file, {'descr': dtype.str, 'fortran_order': False, 'shape': (length,)})

    def append(array):
      if array.dtype != dtype:
        raise ValueError(f'{path.name} must hold {dtype}; got {array.dtype}')
      file.write(array)

    write_header(0)
    start = file.tell()
    yield append
    length = (file.tell() - start) // dtype.itemsize
    file.seek(0)
    write_header(length)  # NumPy pads the header, so a longer number fits.


class StoredSentences(Sentences):
  """Sentences whose `tokens` are a `TokenFile`."""

  def take(self, sentences: np.ndarray) -> np.ndarray:
    """Returns the tokens of some sentences, end to end."""
    return self.tokens.take(self.starts[sentences], self.lengths[sentences])


class TokenFile:
  """A one-dimensional `.npy` file that is read piece by piece."""

  def __init__(self, path: Path):
    self._file = path.open('rb')
    np.lib.format.read_magic(self._file)
    _, _, self._dtype = np.lib.format.read_array_header_1_0(self._file)
    self._offset = self._file.tell()
    if hasattr(os, 'posix_fadvise'):  # macOS has none.
      os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)

  def take(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns pieces of the array, end to end; safe to call from many threads."""
    size = self._dtype.itemsize
    pieces = map(os.pread, itertools.repeat(self._file.fileno()), (lengths * size).tolist(),
                 (self._offset + starts * size).tolist())
    return np.frombuffer(b''.join(pieces), self._dtype)

  def __del__(self):
    self._file.close()
