"""Trees as token sequences for a model, and trees from any model output."""

import difflib
import itertools
import re
from collections.abc import Sequence

from transformer.tools.parse.treebank import (
  TAG,
  Builder,
  Tree,
  escaped,
  split_words,
  walk,
)

_STEP = re.compile(r'([()])([^()]+)')
_BEGUN = re.compile(r'([^()]+)\(')  # An opening bracket in in-order notation.


def linearize(tree: Tree, with_words: bool = False, in_order: bool = False) -> str:
  """Writes a tree as Vinyals et al., 2015, "Grammar as a Foreign Language": `(S (NP XX )NP )S`.

  `XX` replaces each word, unless `with_words`. With `in_order`, the first child of a constituent
  precedes its opening bracket, as in Liu and Zhang, 2017, "In-Order Transition-based Constituent
  Parsing": `XX NP( )NP S( )S`.
  """
  leaves = [escaped(word) if with_words else TAG for word in tree.words]
  tokens = []
  waiting = []  # The labels of open constituents; None once a label has been written.
  for step, label, word in walk(tree):
    if step == '(' and in_order:
      waiting.append(label)
      continue
    tokens.append(step + label if word is None else leaves[word])
    if step and in_order:
      waiting.pop()
    if waiting and waiting[-1] is not None:
      tokens.append(f'{waiting[-1]}(')
      waiting[-1] = None
  return ' '.join(tokens)


def is_linearized(text: str, tree: Tree) -> bool:
  """Returns whether a text is the tree in any form of `linearize`."""
  forms = itertools.product((False, True), repeat=2)
  return ' '.join(split_words(text)) in {linearize(tree, *form) for form in forms}


def delinearize(text: str, words: Sequence[str]) -> Tree:
  """Reads a tree in any form of `linearize`; also builds a tree over `words` from any other text.

  docs/parsing.md explains how text that is not a tree becomes a tree.
  """
  builder = Builder()
  for token in _without_words(_top_down(split_words(text)), words):
    step = _STEP.fullmatch(token)
    if token == TAG:
      if len(builder.words) < len(words):
        builder.add(words[len(builder.words)], TAG)
    elif step and step[1] == '(':
      builder.begin(step[2])
    elif step and builder.open:
      builder.close(step[2])
  while builder.open:
    builder.end()
  brackets = builder.brackets
  if brackets and brackets[0][1:] == (0, len(builder.words)):
    brackets[0] = brackets[0]._replace(stop=len(words))
  for word in words[len(builder.words) :]:
    builder.add(word, TAG)
  return builder.tree()


def _top_down(tokens: list[str]) -> list[str]:
  """Moves the opening brackets of in-order notation before their first children."""
  ordered = []
  begun = []  # Open constituents: index of the bracket, and label.
  child = None  # Index of the innermost constituent's last child.
  for token in tokens:
    opening = _BEGUN.fullmatch(token)
    if opening:
      place = len(ordered) if child is None else child
      begun.append((place, opening[1]))
      ordered.insert(place, f'({opening[1]}')
      child = None
      continue
    ordered.append(token)
    if not token.startswith(')'):
      child = len(ordered) - 1
    elif begun:
      matches = [
        height for height, (_, label) in enumerate(begun) if label == token[1:]
      ]
      nearest = matches[-1] if matches else len(begun) - 1
      child = begun[nearest][0]
      del begun[nearest:]
  return ordered


def _without_words(tokens: list[str], words: Sequence[str]) -> list[str]:
  """Returns the tokens with an `XX` at the position of each source word in the text."""
  places = [place for place, token in enumerate(tokens) if not re.search('[()]', token)]
  leaves = [tokens[place] for place in places]
  escaped_words = list(map(escaped, words))
  if not set(leaves) & (set(escaped_words) - {TAG}):
    return tokens
  counts = dict.fromkeys(places, 0)  # The number of source words at each leaf.
  matcher = difflib.SequenceMatcher(None, leaves, escaped_words, autojunk=False)
  for _, first, last, start, stop in matcher.get_opcodes():
    paired = min(last - first, stop - start)
    for place in places[first : first + paired]:
      counts[place] += 1
    # Words missing in the text follow the preceding word.
    counts[places[max(first + paired - 1, 0)]] += stop - start - paired
  replaced = []
  for place, token in enumerate(tokens):
    replaced += [TAG] * counts[place] if place in counts else [token]
  return replaced
