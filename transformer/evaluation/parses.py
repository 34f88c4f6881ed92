"""Scores of parses: sequences of brackets that a run wrote for sentences with reference trees."""

from collections.abc import Sequence
from typing import Any

from transformer.data.linearisation import Mended, delinearise
from transformer.data.tree_drawing import draw_text
from transformer.data.treebank import bracketed, parse_tree, split_words
from transformer.evaluation import bracketing


def evaluate(sources: Sequence[str], references: Sequence[str], answers: Sequence,
             seconds: float) -> tuple[dict[str, Any], list[dict[str, Any]]]:
  """Scores all parses together, and each by itself.

  Args:
    sources: the sentences.
    references: the tree of each, as `bracketed` writes it.
    answers: the `Translation` of each, a linearised tree.
    seconds: the time of parsing, with compilation.

  Returns:
    JSON data for `Place.write`: the scores of the text, and an object for each sentence, with
    its matched, wanted and found `brackets`.
  """
  trees, parses = list(map(parse_tree, references)), _parses(sources, answers)
  result = bracketing.score(trees, parses) | {
      'sentences': len(sources), 'cut_sources': sum(answer.cut for answer in answers),
      'seconds': seconds, 'sentences_per_second': len(sources) / seconds}
  sentences = []
  for source, reference, answer, tree, parse in zip(sources, references, answers, trees, parses,
                                                    strict=True):
    counts = bracketing.count(tree, parse.tree)
    f1, precision, recall = bracketing.figures([counts])
    sentences.append({
        'source': source, 'references': [reference], 'translation': bracketed(parse.tree),
        'model_score': answer.score, 'F1': f1, 'precision': precision, 'recall': recall,
        'brackets': list(counts), 'mends': parse.mends})
  return result, sentences


def f1(sources: Sequence[str], references: Sequence[str], answers: Sequence) -> float:
  """Returns the F1 of all parses together, in percent; the arguments are those of `evaluate`."""
  return bracketing.figures([
      bracketing.count(parse_tree(reference), parse.tree) for reference, parse in zip(
          references, _parses(sources, answers), strict=True)]).f1


def more_lines(result: dict[str, Any]) -> list[str]:
  """Returns lines for people beside those of the metrics: of short sentences, and of outputs."""
  short = result['short']
  kinds = ', '.join(f'{kind} {count}' for kind, count in result['mends'].items())
  return [f'  at most {short["words"]} words, {short["sentences"]} sentences: '
          f'F1 {short["f1"]:.2f}, precision {short["precision"]:.2f}, '
          f'recall {short["recall"]:.2f}',
          f'  exact {result["exact"]:.2f} %, no tree until mended {result["mended"]:.2f} %'
          + (f' ({kinds})' if kinds else '')]


def example(source: str, reference: str, answer) -> str:
  """Returns the drawings of a reference and of its parse."""
  parse, = _parses([source], [answer])
  return (f'reference\n{draw_text(parse_tree(reference))}\n\n'
          f'parse\n{draw_text(parse.tree)}\n')


def _parses(sources: Sequence[str], answers: Sequence) -> list[Mended]:
  return [delinearise(answer.text, split_words(source))
          for source, answer in zip(sources, answers, strict=True)]
