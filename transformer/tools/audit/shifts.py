"""Finds lines whose translation is some lines away, by the lengths of lines."""

import numpy as np

_WINDOW = 500  # lines whose lengths are compared
_FEWEST = 50  # lines in the smallest window that is tested
_FARTHEST = 5  # lines of the largest shift that is tested
_SURE = 6.0  # the least advantage of a shift over no shift, in standard deviations
_LEAST_CORRELATION = 0.3


def shifts(source: np.ndarray, target: np.ndarray) -> list[tuple[int, int, int]]:
  """Finds runs of lines where lengths correlate better after a shift, as of a missing line.

  Returns of each run its first line, the line after its last, and how many lines the translation
  comes later.
  """
  runs = []
  for first in range(0, len(source), _WINDOW):
    last = min(first + _WINDOW, len(source))
    shift = _shift(np.log1p(source[first:last]), np.log1p(target[first:last]))
    if not shift:
      continue
    if runs and runs[-1][1:] == (first, shift):
      first, *_ = runs.pop()
    runs.append((first, last, shift))
  return runs


def _shift(source, target) -> int:
  """Returns the shift of a window; 0 where none is sure."""
  size = len(source)
  if size < _FEWEST:
    return 0
  fits = {}
  for shift in range(-_FARTHEST, _FARTHEST + 1):
    early = max(0, -shift)
    late = max(0, shift)
    fits[shift] = _correlation(source[early : size - late], target[late : size - early])
  best = max(fits, key=fits.get)
  # Fisher's z of a correlation has a variance of 1 / (n − 3).
  deviation = np.sqrt(2 / (size - abs(best) - 3))
  better = (np.arctanh(fits[best]) - np.arctanh(fits[0])) / deviation
  return best if fits[best] > _LEAST_CORRELATION and better > _SURE else 0


def _correlation(one, other) -> float:
  """Returns Pearson's correlation, times 0.9999 for a finite arctanh; 0 if a side is constant."""
  one = one - one.mean()
  other = other - other.mean()
  norm = np.sqrt((one @ one) * (other @ other))
  return float(0.9999 * (one @ other) / norm) if norm > 0 else 0.0
