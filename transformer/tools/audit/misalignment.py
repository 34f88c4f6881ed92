"""Detects misaligned lines from line lengths: translations that are some lines away."""

import numpy as np

_WINDOW = 500  # lines whose lengths are compared
_FEWEST = 50  # minimum lines in a window that is tested
_FARTHEST = 5  # maximum shift that is tested, in lines
_SURE = 6.0  # minimum advantage of a shift over no shift, in standard deviations
_LEAST_CORRELATION = 0.3


def line_shifts(source: np.ndarray, target: np.ndarray) -> np.ndarray:
  """Returns, for each source line, how many lines later its translation is, int64 [lines].

  A non-zero shift means that the lengths in a window of lines correlate better with this shift, for
  example after a missing line.
  """
  shifts = np.zeros(len(source), np.int64)
  for first in range(0, len(source), _WINDOW):
    window = slice(first, first + _WINDOW)
    shifts[window] = _shift(np.log1p(source[window]), np.log1p(target[window]))
  return shifts


def _shift(source: np.ndarray, target: np.ndarray) -> int:
  """Returns the shift of a window; 0 if none is significant."""
  size = len(source)
  if size < _FEWEST:
    return 0
  fits = {}
  for shift in range(-_FARTHEST, _FARTHEST + 1):
    early = max(0, -shift)
    late = max(0, shift)
    fits[shift] = _correlation(source[early : size - late], target[late : size - early])
  best = max(fits, key=lambda shift: fits[shift])
  # Fisher's z of a correlation has a variance of 1 / (n − 3).
  deviation = np.sqrt(2 / (size - abs(best) - 3))
  better = np.arctanh(fits[best]) - np.arctanh(fits[0])
  is_sure = fits[best] > _LEAST_CORRELATION and better > _SURE * deviation
  return best if is_sure else 0


def _correlation(source: np.ndarray, target: np.ndarray) -> float:
  """Returns Pearson's correlation, times 0.9999 for a finite arctanh; 0 if a side is constant."""
  if not (np.ptp(source) and np.ptp(target)):
    return 0.0
  return 0.9999 * np.corrcoef(source, target)[0, 1]
