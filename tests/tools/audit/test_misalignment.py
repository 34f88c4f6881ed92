"""A missing line on one side is found by the lengths after it; nothing else is found."""

import numpy as np
import pytest

from transformer.tools.audit.misalignment import line_shifts

WINDOW = 500


def lengths(lines, seed=0):
  """Returns lengths of sentences and of their translations."""
  rng = np.random.default_rng(seed)
  source = rng.lognormal(4, 0.5, lines)
  return source.astype(int), (source * rng.lognormal(0, 0.15, lines)).astype(int)


@pytest.mark.parametrize('seed', range(5))
def test_aligned_pairs_have_no_finding(seed):
  source, target = lengths(3 * WINDOW, seed)
  assert not line_shifts(source, target).any()
  # Neighbors fit equally well.
  assert not line_shifts(np.sort(source), np.sort(target)).any()
  assert not line_shifts(source, np.random.default_rng(9).permutation(target)).any()
  assert not line_shifts(source, np.full_like(target, 7)).any()
  assert not line_shifts(np.zeros_like(source), target).any()
  assert not line_shifts(source[:0], target[:0]).any()


@pytest.mark.parametrize('missing', [1, 2, 5])
def test_missing_lines_are_reported_with_their_side_and_number(missing):
  source, target = lengths(3 * WINDOW + 100)
  place = WINDOW  # Lines are missing from here on.
  shorter = np.delete(source, np.arange(place, place + missing))
  one, other = shorter, target[: len(shorter)]
  for shift, found in (
    (missing, line_shifts(one, other)),
    (-missing, line_shifts(other, one)),
  ):
    assert not found[:WINDOW].any() and (found[WINDOW:] == shift).all()


def test_offsets_of_different_sizes_are_distinguished():
  source, target = lengths(3 * WINDOW + 2)
  target = np.delete(target, [WINDOW, 2 * WINDOW + 1])
  found = line_shifts(source[:-2], target).reshape(3, WINDOW)
  assert [set(window) for window in found.tolist()] == [{0}, {-1}, {-2}]


def test_fifty_lines_are_enough():
  source, target = lengths(51)
  assert (line_shifts(source[1:], target[:50]) == 1).all()
  assert not line_shifts(source[1:50], target[:49]).any()
