"""Scores of parses: output lines of a run for sentences with reference trees.

Each function is a metric for `train.valid_metric` and `eval.py --metric`. `references` has one list
of trees with tags, as `bracketed` writes them.
"""

from collections.abc import Sequence

from transformer.tools.parse import bracketing
from transformer.tools.parse.linearization import delinearize, is_linearized
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
  repaired = sum(
    not is_linearized(line, tree) for line, tree in zip(parses, trees, strict=True)
  )
  return {**scores, 'repaired': 100 * repaired / max(len(trees), 1)}


def _trees(sources: Sequence[str], parses: Sequence[str]) -> list[Tree]:
  return [
    delinearize(line, split_words(source))
    for source, line in zip(sources, parses, strict=True)
  ]
