"""MBR decoding: the candidate with the highest expected utility over all candidates."""

import collections
import multiprocessing
import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from transformer.data.text.text_files import read_lines
from transformer.errors import UserError, short_repr
from transformer.evaluation.metrics import sacrebleu_metric

_LINE = re.compile(r'(\d+) \|\|\| (.*) \|\|\| \S+')
# Sentences per task of a process.
_TOGETHER = 8


def read_lists(path: Path) -> list[list[str]]:
  """Returns the candidates of each sentence, from a file of eval.py --nbest=N."""
  lists: list[list[str]] = []
  for line_number, line in enumerate(read_lines(path), 1):
    try:
      sentence, text = _LINE.fullmatch(line).groups()
      if int(sentence) == len(lists):
        lists.append([])
      if int(sentence) != len(lists) - 1:
        raise ValueError(sentence)
      lists[-1].append(text)
    except (AttributeError, ValueError) as error:
      raise UserError(
        f'line {line_number} of {path} should be NUMBER ||| TEXT ||| SCORE of sentence '
        f'{max(len(lists) - 1, 0)} or {len(lists)}, as eval.py --nbest=N writes it; got '
        f'{short_repr(line)}'
      ) from error
  if not lists:
    raise UserError(
      f'{path} should hold n-best lists, as eval.py --nbest=N writes them; it is empty'
    )
  return lists


def select_by_mbr(lists: Sequence[Sequence[str]], processes: int) -> list[str]:
  """Returns the candidate of each list with the highest expected chrF2++; ties go to the first.

  The expectation is over the candidates of the list, weighted by their frequency (Eikema and Aziz,
  2022, "Sampling-Based Approximations to Minimum Bayes Risk Decoding for Neural Machine
  Translation", equation 6). For an empty list, the result is ''.
  """
  if processes == 1 or len(lists) <= _TOGETHER:
    return list(map(_best, lists))
  # Spawned, because a library may have threads, which would not survive a fork.
  with ProcessPoolExecutor(processes, multiprocessing.get_context('spawn')) as pool:
    return list(pool.map(_best, lists, chunksize=_TOGETHER))


def _best(candidates: Sequence[str]) -> str:
  """Returns the candidate with the highest expected utility; ties go to the first."""
  counts = collections.Counter(candidates)
  if len(counts) < 2:
    return candidates[0] if candidates else ''
  metric = sacrebleu_metric('chrF2++', '13a')

  def expected(text: str) -> float:
    return sum(
      count * metric.sentence_score(text, [other]).score
      for other, count in counts.items()
    )

  return max(counts, key=expected)
