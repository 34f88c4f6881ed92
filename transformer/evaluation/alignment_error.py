"""The alignment error rate (Och and Ney, 2003), with its precision and recall."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from transformer.data.pharaoh import GoldLinks, Link, alignment_lines
from transformer.evaluation.resampling import metric_lines, scored

SIGNATURE = 'aer:och+ney.2003|links:sure,possible|words:white space'
_NAMES = ('AER', 'precision', 'recall')


class Counts(NamedTuple):
  """The links of a pair of sentences.

  Attributes:
    found: how many an alignment has.
    sure: how many sure ones the gold alignment has.
    found_sure: how many of the found ones are sure.
    found_possible: how many of the found ones are possible, the sure ones included.
  """

  found: int
  sure: int
  found_sure: int
  found_possible: int


class Figures(NamedTuple):
  """Scores of alignments together, in percent.

  Attributes:
    error_rate: 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), for found links A, sure S and possible P.
    precision: |A ∩ P| / |A|.
    recall: |A ∩ S| / |S|.
  """

  error_rate: float
  precision: float
  recall: float


def count(gold: GoldLinks, found: Iterable[Link]) -> Counts:
  """Counts the links of one pair of sentences."""
  links = set(found)
  return Counts(len(links), len(gold.sure), len(links & gold.sure), len(links & gold.possible))


def figures(counts: Sequence[Counts]) -> Figures:
  """Returns the scores of alignments together; without a link nothing is wrong."""
  return Figures(*map(float, _figures(np.sum([(0, 0, 0, 0), *counts], axis=0))))


def evaluate(sources: Sequence[str], targets: Sequence[str], gold: Sequence[GoldLinks],
             found: Sequence[Iterable[Link]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
  """Scores all alignments together, and each by itself.

  Args:
    sources: lines of text, at least one.
    targets: a translation of each.
    gold: the gold alignment of each pair.
    found: the alignment of each pair.

  Returns:
    JSON data for `Place.write`: an object for the text, and one for each pair, with its
    `alignment` in Pharaoh's format. `metrics`: the error rate, precision and recall in percent,
    with the 95 % interval of bootstrap resampling over pairs. `links`: how many are found, sure
    and possible.
  """
  counts = [count(*pair) for pair in zip(gold, found, strict=True)]
  result = {
      'metrics': scored(_NAMES, SIGNATURE, counts, _figures),
      'sentences': len(counts),
      'links': {'found': sum(each.found for each in counts),
                'sure': sum(each.sure for each in counts),
                'possible': sum(len(each.possible) for each in gold)}}
  sentences = [
      {'source': source, 'references': [target], 'alignment': line,
       **dict(zip(_NAMES, figures([each]), strict=True))}
      for source, target, line, each in zip(
          sources, targets, alignment_lines(found), counts, strict=True)]
  return result, sentences


def as_table(result: dict[str, Any]) -> list[str]:
  """Returns the lines of a table: the metrics with their intervals, then the numbers of links."""
  links = ', '.join(f'{number:,} {kind}' for kind, number in result['links'].items())
  return [*metric_lines(result['metrics']), f'  {links} links']


def _figures(sums: np.ndarray) -> np.ndarray:
  """Computes [3, ...] error rate, precision and recall from [4, ...] sums of `Counts`."""
  found, sure, found_sure, found_possible = sums
  right, precision, recall = (
      np.where(whole, 100 * part / np.maximum(whole, 1), 100.0)
      for part, whole in ((found_sure + found_possible, found + sure), (found_possible, found),
                          (found_sure, sure)))
  return np.stack([100 - right, precision, recall])
