"""Where the two sides of a corpus have slipped, told from the lengths of their lines."""

import numpy as np

WINDOW = 500  # lines whose lengths are compared
_FEWEST = 50  # lines that a shift can be seen in
_FARTHEST = 5  # lines that a shift is looked for
# How much better another line must fit than the own one, in standard deviations, and at least.
_SURE, _LEAST_CORRELATION = 6.0, 0.3


def shifts(source: np.ndarray, target: np.ndarray) -> list[tuple[int, int]]:
  """Finds windows of lines in which the lengths of other lines fit better than the own.

  Long sentences have long translations, so lengths correlate; where a line is missing
  on one side, they do so with a line before or after.

  Args:
    source: characters of each line, int [lines].
    target: likewise.

  Returns:
    The first line of each such window, from 0, and the shift that fits best: by how
    many lines the translation comes later.
  """
  found = []
  for first in range(0, len(source), WINDOW):
    window = [np.log1p(side[first:first + WINDOW]) for side in (source, target)]
    size = len(window[0])
    if size < _FEWEST:
      continue
    fits = {shift: _correlation(window[0][max(0, -shift):size - max(0, shift)],
                                window[1][max(0, shift):size - max(0, -shift)])
            for shift in range(-_FARTHEST, _FARTHEST + 1)}
    best = max(fits, key=fits.get)
    # Fisher's z of a correlation has a variance of 1 / (n − 3).
    better = (np.arctanh(fits[best]) - np.arctanh(fits[0])) * np.sqrt((size - abs(best) - 3) / 2)
    if fits[best] > _LEAST_CORRELATION and better > _SURE:
      found.append((first, best))
  return found


def _correlation(one, other) -> float:
  """Pearson's, a little short of ±1; 0 where either is constant."""
  one, other = one - one.mean(), other - other.mean()
  norm = np.sqrt((one @ one) * (other @ other))
  return float(0.9999 * (one @ other) / norm) if norm > 0 else 0.0
