"""Labelled bracketing precision, recall and F1 of trees, as EVALB with COLLINS.prm."""

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from transformer.evaluation.scores import TRIALS, resampled, seed_of_samples
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
    raise ValueError(f'trees must have the same words; got {reference.words}, {found.words}')
  kept = np.concatenate([[0], np.cumsum([tag not in _DELETED for tag in reference.tags])]).tolist()
  wanted, given = (
    collections.Counter(
      (_SAME_LABELS.get(label, label), kept[start], kept[stop])
      for name, start, stop in tree.brackets
      if (label := plain_label(name)) not in _DELETED and kept[start] < kept[stop]
    )
    for tree in (reference, found)
  )
  return Counts((wanted & given).total(), wanted.total(), given.total())


def figures(counts: Sequence[Counts]) -> list[float]:
  """Returns F1, precision and recall of sentences together; 100 where no tree has a bracket."""
  return _figures(np.sum([(0, 0, 0), *counts], axis=0)).tolist()


def score(references: Sequence[Tree], answers: Sequence[Mended]) -> dict[str, Any]:
  """Scores trees against references; returns JSON data, as docs/parsing.md lists it."""
  counts = [
    count(reference, answer.tree) for reference, answer in zip(references, answers, strict=True)
  ]
  both = list(zip(references, counts, strict=True))
  short = [own for reference, own in both if len(reference.words) <= SHORT]
  exact = [
    own.matched == own.wanted == own.found
    for reference, own in both
    if not _DELETED.issuperset(reference.tags)
  ]
  mends = collections.Counter(kind for answer in answers for kind in answer.mends)
  return {
    'metrics': scored(NAMES, SIGNATURE, counts, _figures),
    'short': {
      'words': SHORT,
      'sentences': len(short),
      **dict(zip(('f1', 'precision', 'recall'), figures(short), strict=True)),
    },
    'exact': _percent(exact),
    'mended': _percent([bool(answer.mends) for answer in answers]),
    'mends': dict(mends.most_common()),
  }


def differences(baseline: Sequence[Counts], system: Sequence[Counts]) -> list[dict[str, Any]]:
  """Tests whether two systems differ on the same sentences, with sacreBLEU's two paired tests.

  Returns for each of `NAMES` both scores, and p of paired `bootstrap` resampling (Koehn, 2004) and
  of approximate `randomisation` (Riezler and Maxwell, 2005).
  """
  one, two = (np.array(counts, np.int64) for counts in (baseline, system))
  totals = one.sum(axis=0), two.sum(axis=0)
  scores = list(map(_figures, totals))
  gaps = _figures(resampled(two).T) - _figures(resampled(one).T)
  shifted = gaps - gaps.mean(axis=1, keepdims=True)
  rng = np.random.default_rng(seed_of_samples()['seed'])
  # In each trial, each sentence changes sides or not.
  moved = np.array([(two - one)[rng.random(len(one)) < 0.5].sum(axis=0) for _ in range(TRIALS)])
  swapped = _figures((totals[1] - moved).T) - _figures((totals[0] + moved).T)
  gap = np.abs(np.subtract(*scores))[:, None] - 1e-9  # Equal but for rounding is as large.
  tests = [
    (1 + np.sum(np.abs(gaps) >= gap, axis=1)) / (1 + gaps.shape[1]) for gaps in (shifted, swapped)
  ]
  return [
    {'metric': name, 'baseline': ours, 'system': theirs, 'bootstrap': p, 'randomisation': q}
    for name, (ours, theirs, p, q) in zip(
      NAMES, np.transpose([*scores, *tests]).tolist(), strict=True
    )
  ]


def _figures(sums: np.ndarray) -> np.ndarray:
  """Computes [3, ...] F1, precision and recall from [3, ...] sums of `Counts`, in percent."""
  matched, wanted, found = sums
  of_nothing = np.where(wanted + found, 0.0, 100.0)  # EVALB gives 0 where only one has brackets.
  return np.stack(
    [
      np.where(whole, 100 * part / np.maximum(whole, 1), of_nothing)
      for part, whole in ((2 * matched, wanted + found), (matched, found), (matched, wanted))
    ]
  )


def _percent(facts: Sequence[bool]) -> float:
  return 100 * sum(facts) / len(facts) if facts else 100.0
