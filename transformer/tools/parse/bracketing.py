"""Labelled bracketing precision, recall and F1 of trees, as EVALB with COLLINS.prm."""

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from transformer.tools._counted_scores import scored
from transformer.tools.parse.linearisation import Mended
from transformer.tools.parse.treebank import Tree, plain_label

SIGNATURE = 'evalb|prm:COLLINS|deleted:by the tags of the reference'
SHORT = 40  # Words; results for sentences of at most so many are usual too.
_DELETED = frozenset(['TOP', '-NONE-', ',', ':', '``', "''", '.'])
_SAME_LABELS = {'PRT': 'ADVP'}
NAMES = ('F1', 'precision', 'recall')


class Counts(NamedTuple):
  """The numbers of brackets of a sentence: in both trees, in the reference, in the other tree."""

  matched: int
  wanted: int
  found: int


def count(reference: Tree, found: Tree) -> Counts:
  """Counts the brackets of two trees of the same words, as EVALB does by docs/parsing.md."""
  if reference.words != found.words:
    raise ValueError(
      f'trees must have the same words; got {reference.words}, {found.words}'
    )
  counts = [tag not in _DELETED for tag in reference.tags]
  kept = np.cumsum(
    [0, *counts]
  ).tolist()  # Words before each place, without the deleted ones.
  wanted = _brackets(reference, kept)
  given = _brackets(found, kept)
  return Counts((wanted & given).total(), wanted.total(), given.total())


def _brackets(tree: Tree, kept: Sequence[int]) -> collections.Counter:
  """Counts the brackets of a tree by label and by span, without deleted words."""
  brackets = collections.Counter()
  for name, start, stop in tree.brackets:
    label = plain_label(name)
    if label not in _DELETED and kept[start] < kept[stop]:
      brackets[_SAME_LABELS.get(label, label), kept[start], kept[stop]] += 1
  return brackets


def figures(counts: Sequence[Counts]) -> list[float]:
  """Returns F1, precision and recall of sentences together; 100 where no tree has a bracket."""
  return _figures(np.sum([(0, 0, 0), *counts], axis=0)).tolist()


def score(references: Sequence[Tree], answers: Sequence[Mended]) -> dict[str, Any]:
  """Scores trees against references; returns JSON data, as docs/parsing.md lists it."""
  counts = []
  short = []
  exact = []
  for reference, answer in zip(references, answers, strict=True):
    of_tree = count(reference, answer.tree)
    counts.append(of_tree)
    if len(reference.words) <= SHORT:
      short.append(of_tree)
    if not _DELETED.issuperset(reference.tags):
      exact.append(of_tree.matched == of_tree.wanted == of_tree.found)
  f1, precision, recall = figures(short)
  mends = collections.Counter()
  for answer in answers:
    mends.update(answer.mends.keys())
  return {
    'metrics': scored(NAMES, SIGNATURE, counts, _figures),
    'short': {
      'words': SHORT,
      'sentences': len(short),
      'f1': f1,
      'precision': precision,
      'recall': recall,
    },
    'exact': _percent(exact),
    'mended': _percent([bool(answer.mends) for answer in answers]),
    'mends': dict(mends.most_common()),
  }


def _figures(sums: np.ndarray) -> np.ndarray:
  """Computes [3, ...] F1, precision and recall from [3, ...] sums of `Counts`, in percent."""
  matched, wanted, found = sums
  of_nothing = np.where(
    wanted + found, 0.0, 100.0
  )  # EVALB gives 0 where only one has brackets.

  def percent(part, whole):
    return np.where(whole, 100 * part / np.maximum(whole, 1), of_nothing)

  f1 = percent(2 * matched, wanted + found)
  return np.stack([f1, percent(matched, found), percent(matched, wanted)])


def _percent(facts: Sequence[bool]) -> float:
  return 100 * sum(facts) / len(facts) if facts else 100.0
