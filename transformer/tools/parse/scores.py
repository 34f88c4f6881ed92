"""Scores of parses: output lines of a run for sentences with reference trees.

Each function is a metric for `train.valid_metric` and `eval.py --metric`. `references` has one list
of trees with tags, as `bracketed` writes them.
"""

from collections.abc import Sequence

from transformer.tools.parse import bracketing
from transformer.tools.parse.linearisation import delinearise, is_linearised
from transformer.tools.parse.treebank import Tree, parse_tree, split_words


def f1(
  sources: Sequence[str], parses: Sequence[str], references: Sequence[Sequence[str]]
) -> float:
  """Returns the labeled F1 of linearized trees, in percent."""
  return evalb(sources, parses, references)['F1']


def evalb(
  sources: Sequence[str], parses: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, float]:
  """Returns the scores of `bracketing.score`, and the percentage of lines that were not a tree."""
  trees = _trees(sources, parses)
  scores = bracketing.score(list(map(parse_tree, references[0])), trees)
  mended = sum(
    not is_linearised(line, tree) for line, tree in zip(parses, trees, strict=True)
  )
  return {**scores, 'mended': 100 * mended / max(len(trees), 1)}


def _trees(sources: Sequence[str], parses: Sequence[str]) -> list[Tree]:
  return [
    delinearise(line, split_words(source))
    for source, line in zip(sources, parses, strict=True)
  ]
