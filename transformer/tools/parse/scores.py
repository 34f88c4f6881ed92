"""Scores of parses: lines that a run wrote for sentences with reference trees."""

from collections.abc import Iterator, Sequence
from typing import Any

from transformer.decoding.translator import Translation
from transformer.evaluation.texts import Text
from transformer.tools.parse import bracketing
from transformer.tools.parse.linearisation import Mended, delinearise
from transformer.tools.parse.treebank import bracketed, parse_tree, split_words


def f1(
  sources: Sequence[str], parses: Sequence[str], references: Sequence[Sequence[str]]
) -> float:
  """Returns the labelled F1 of linearised trees, in percent: a metric for the road's seam.

  The one sequence of references has trees with tags, as `bracketed` writes them.
  """
  counts = []
  for source, parse, reference in zip(sources, parses, references[0], strict=True):
    counts.append(bracketing.count(parse_tree(reference), mended(source, parse).tree))
  return bracketing.figures(counts)[0]


def mended(source: str, line: str) -> Mended:
  """Returns the tree of a sentence that a run has written as a line."""
  return delinearise(line, split_words(source))


def evaluate(
  text: Text, answers: Sequence[Translation], seconds: float
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
  """Yields the result of a text and an object for each sentence, once, for evaluation's report."""
  trees = list(map(parse_tree, text.references[0]))
  parses = []
  sentences = []
  for source, tree, answer in zip(text.sources, trees, answers, strict=True):
    parse = mended(source, answer.text)
    counts = bracketing.count(tree, parse.tree)
    parses.append(parse)
    sentences.append(
      {
        'source': source,
        'references': [bracketed(tree)],
        'translation': bracketed(parse.tree),
        'model_score': answer.score,
        **dict(zip(bracketing.NAMES, bracketing.figures([counts]), strict=True)),
        'brackets': list(counts),
        'mends': parse.mends,
      }
    )
  result = {
    'sentences': len(trees),
    'cut_sources': sum(answer.cut for answer in answers),
    'seconds': seconds,
    'sentences_per_second': len(trees) / seconds,
  }
  yield bracketing.score(trees, parses) | result, sentences


def more_lines(result: dict[str, Any]) -> list[str]:
  """Returns lines for people beside those of the metrics: of short sentences, and of mends."""
  kinds = ', '.join(f'{kind} {count}' for kind, count in result['mends'].items())
  mends = f' ({kinds})' if kinds else ''
  return [
    '  at most {words} words, {sentences} sentences: F1 {f1:.2f}, precision {precision:.2f}, '
    'recall {recall:.2f}'.format(**result['short']),
    f'  exact {result["exact"]:.2f} %, no tree until mended {result["mended"]:.2f} %{mends}',
  ]
