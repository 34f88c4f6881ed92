"""The alignment error rate (Och and Ney, 2003), with its precision and recall."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from transformer.tools._counted_scores import scored
from transformer.tools.align.links import GoldLinks, Link, alignment_lines

SIGNATURE = 'aer:och+ney.2003|links:sure,possible|words:white space'
NAMES = ('AER', 'precision', 'recall')


def count(gold: GoldLinks, links: Iterable[Link]) -> tuple[int, int, int, int]:
  """Returns the number of links; of sure ones in the gold; of links that are sure, and possible."""
  links = set(links)
  right_sure = len(links & gold.sure)
  right_possible = len(links & gold.possible)
  return len(links), len(gold.sure), right_sure, right_possible


def rates(counts: np.ndarray | Sequence[int]) -> np.ndarray:
  """Returns error rate, precision and recall in percent, from sums [4, ...] of `count`.

  For links A, sure S and possible P, the error rate is 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), the
  precision |A ∩ P| / |A|, and the recall |A ∩ S| / |S|. Without a link nothing is wrong.
  """
  linked, sure, right_sure, right_possible = np.asarray(counts)
  right = _percent(right_sure + right_possible, linked + sure)
  precision = _percent(right_possible, linked)
  recall = _percent(right_sure, sure)
  return np.stack([100 - right, precision, recall])


def _percent(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
  return np.where(whole, 100 * part / np.maximum(whole, 1), 100.0)


def evaluate(
  sources: Sequence[str],
  targets: Sequence[str],
  gold: Sequence[GoldLinks],
  alignments: Sequence[Sequence[Link]],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
  """Scores all alignments together, and each by itself; JSON data for `Result.write`."""
  counts = [count(*pair) for pair in zip(gold, alignments, strict=True)]
  linked, sure, *_ = np.sum(counts, axis=0).tolist()
  result = {
    'metrics': scored(NAMES, SIGNATURE, counts, rates),
    'sentences': len(counts),
    'links': {
      'found': linked,
      'sure': sure,
      'possible': sum(len(links.possible) for links in gold),
    },
  }
  lines = alignment_lines(alignments)
  sentences = []
  for source, target, line, numbers in zip(
    sources, targets, lines, counts, strict=True
  ):
    scores = dict(zip(NAMES, rates(numbers).tolist(), strict=True))
    about = {'source': source, 'references': [target], 'alignment': line}
    sentences.append(about | scores)
  return result, sentences


def more_lines(result: dict[str, Any]) -> list[str]:
  """Returns a line for people with the numbers of links."""
  return [
    '  {found:,} found, {sure:,} sure, {possible:,} possible links'.format(
      **result['links']
    )
  ]
