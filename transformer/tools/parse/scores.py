"""Scores of parses: lines that a run wrote for sentences with reference trees."""

from collections.abc import Iterator, Sequence
from typing import Any

from transformer.decoding.translator import Translation
from transformer.evaluation.texts import Text
from transformer.tools.parse import bracketing
from transformer.tools.parse.linearisation import Mended, delinearise
from transformer.tools.parse.treebank import bracketed, parse_tree, split_words


def f1(sources: Sequence[str], parses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
  """Returns the labelled F1 of all sentences together, in percent: a metric for the road's seam.

  Args:
    sources: the sentences.
    parses: a linearised tree for each; other lines are mended first.
    references: a sequence of trees with tags, as `bracketed` writes them.
  """
  return bracketing.figures([
      bracketing.count(parse_tree(reference), mended(source, parse).tree)
      for source, parse, reference in zip(sources, parses, references[0], strict=True)]).f1


def mended(source: str, line: str) -> Mended:
  """Returns the tree of a sentence that a run has written as a line."""
  return delinearise(line, split_words(source))


def evaluate(text: Text, answers: Sequence[Translation], seconds: float
             ) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
  """Scores all parses together, and each by itself.

  Args:
    text: the sentences, with one reference: the trees as `bracketed` writes them.
    answers: what the run has written for each.
    seconds: the time of parsing, with compilation.

  Yields:
    JSON data, once, as `report.Scored` has it. The object of a sentence has its matched, wanted
    and found `brackets`.
  """
  trees = list(map(parse_tree, text.references[0]))
  parses = [mended(source, answer.text)
            for source, answer in zip(text.sources, answers, strict=True)]
  sentences = []
  for source, reference, answer, tree, parse in zip(
      text.sources, text.references[0], answers, trees, parses, strict=True):
    counts = bracketing.count(tree, parse.tree)
    figures = zip(bracketing.NAMES, bracketing.figures([counts]), strict=True)
    sentences.append({
        'source': source, 'references': [reference], 'translation': bracketed(parse.tree),
        'model_score': answer.score, **dict(figures), 'brackets': list(counts),
        'mends': parse.mends})
  yield bracketing.score(trees, parses) | {
      'sentences': len(trees), 'cut_sources': sum(answer.cut for answer in answers),
      'seconds': seconds, 'sentences_per_second': len(trees) / seconds}, sentences


def more_lines(result: dict[str, Any]) -> list[str]:
  """Returns lines for people beside those of the metrics: of short sentences, and of mends."""
  short = result['short']
  kinds = ', '.join(f'{kind} {count}' for kind, count in result['mends'].items())
  return [f'  at most {short["words"]} words, {short["sentences"]} sentences: '
          f'F1 {short["f1"]:.2f}, precision {short["precision"]:.2f}, '
          f'recall {short["recall"]:.2f}',
          f'  exact {result["exact"]:.2f} %, no tree until mended {result["mended"]:.2f} %'
          + (f' ({kinds})' if kinds else '')]
