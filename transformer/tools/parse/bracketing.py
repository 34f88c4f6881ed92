"""Labeled bracketing precision, recall and F1 of trees, as in EVALB with COLLINS.prm."""

import collections
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from transformer.tools.parse.treebank import Tree, plain_label

SHORT = 40  # Words; F1 is often also reported for sentences of at most this length.
_DELETED = frozenset(['TOP', '-NONE-', ',', ':', '``', "''", '.'])
_SAME_LABELS = {'PRT': 'ADVP'}


class Counts(NamedTuple):
  """The numbers of brackets of a sentence.

  Attributes:
    matched: brackets in both trees.
    expected: brackets in the reference.
    predicted: brackets in the other tree.
  """

  matched: int
  expected: int
  predicted: int


def count(reference: Tree, candidate: Tree) -> Counts:
  """Counts the brackets of two trees with the same words, as in EVALB (see docs/parsing.md)."""
  if reference.words != candidate.words:
    raise ValueError(
      f'trees must have the same words; got {reference.words}, {candidate.words}'
    )
  counts = [tag not in _DELETED for tag in reference.tags]
  # Number of words before each position, without the deleted ones.
  num_before = list(itertools.accumulate(counts, initial=0))
  expected = _brackets(reference, num_before)
  predicted = _brackets(candidate, num_before)
  return Counts((expected & predicted).total(), expected.total(), predicted.total())


def _brackets(tree: Tree, num_before: Sequence[int]) -> collections.Counter:
  """Counts the brackets of a tree by label and span, without deleted words."""
  brackets = collections.Counter()
  for name, start, stop in tree.brackets:
    label = plain_label(name)
    if label not in _DELETED and num_before[start] < num_before[stop]:
      brackets[_SAME_LABELS.get(label, label), num_before[start], num_before[stop]] += 1
  return brackets


def score(references: Sequence[Tree], candidates: Sequence[Tree]) -> dict[str, float]:
  """Scores trees against references, in percent; docs/parsing.md lists the scores."""
  counts = list(map(count, references, candidates))
  sums = Counts(*map(sum, zip(*counts, strict=True)))
  short = [
    of_tree
    for reference, of_tree in zip(references, counts, strict=True)
    if len(reference.words) <= SHORT
  ]
  short_sums = Counts(*map(sum, zip((0, 0, 0), *short, strict=True)))
  # A sentence of only punctuation has no brackets to find.
  exact = [
    matched == expected == predicted
    for reference, (matched, expected, predicted) in zip(
      references, counts, strict=True
    )
    if not _DELETED.issuperset(reference.tags)
  ]
  return {
    'F1': _percent(2 * sums.matched, sums.expected + sums.predicted, sums),
    'precision': _percent(sums.matched, sums.predicted, sums),
    'recall': _percent(sums.matched, sums.expected, sums),
    f'F1_{SHORT}': _percent(
      2 * short_sums.matched, short_sums.expected + short_sums.predicted, short_sums
    ),
    'exact': 100 * sum(exact) / len(exact) if exact else 100.0,
  }


def _percent(part: int, whole: int, counts: Counts) -> float:
  """Returns a percentage; if `whole` is 0: 100 if no tree has brackets, else 0, as in EVALB."""
  if whole:
    return 100 * part / whole
  return 0.0 if counts.expected + counts.predicted else 100.0
