"""Trees as sequences that a model can write, and trees of any sequence that it has written."""

import collections
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from transformer.tools.parse.treebank import (
  TAG,
  Bracket,
  Builder,
  Tree,
  escaped,
  split_words,
  walk,
)

_STEP = re.compile(r'([()])([^()]+)')
_BEGUN = re.compile(r'([^()]+)\(')  # An opening bracket of the in-order form.


class Mended(NamedTuple):
  """The tree of a sequence, with the words of the source, and its mistakes by docs/parsing.md."""

  tree: Tree
  mends: Mapping[str, int]


def linearise(tree: Tree, with_words: bool = False, in_order: bool = False) -> str:
  """Writes a tree as Vinyals et al., 2015, "Grammar as a Foreign Language": `(S (NP XX )NP )S`.

  `XX` stands for each word, unless it is `with_words`. With `in_order`, the first child of a
  constituent stands before its opening bracket, as in Liu and Zhang, 2017, "In-Order
  Transition-based Constituent Parsing": `XX NP( )NP S( )S`.
  """
  leaves = [escaped(word) if with_words else TAG for word in tree.words]
  tokens = []
  waiting = []  # The labels of open constituents; None once they are written.
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


def delinearise(text: str, words: Sequence[str]) -> Mended:
  """Reads a tree in any form of `linearise`; makes a tree of `words` from any other text too.

  A closing bracket closes the nearest open constituent with its label, and all inside it.
  """
  builder = Builder()
  mends = collections.Counter()
  for token in _without_words(_top_down(split_words(text)), words, mends):
    _add(token, builder, words, mends)
  mends['unclosed'] += len(builder.open)
  mends['empty'] += builder.end_some(len(builder.open))
  present = len(builder.words)
  has_root = bool(builder.brackets) and builder.brackets[0][1:] == (0, present)
  roots = _count_roots(builder.brackets)
  mends['missing'] += len(words) - present
  mends['no tree'] += not roots and bool(words)
  mends['several roots'] += roots > 1 or (roots == 1 and not has_root)
  if present and has_root:
    builder.brackets[0] = builder.brackets[0]._replace(stop=len(words))
  for word in words[present:]:
    builder.add(word, TAG)
  found = {kind: count for kind, count in sorted(mends.items()) if count}
  return Mended(builder.tree(), found)


def _add(
  token: str, builder: Builder, words: Sequence[str], mends: collections.Counter
):
  """Adds a token to the tree, and counts what is wrong about it."""
  if token == TAG:
    if len(builder.words) < len(words):
      builder.add(words[len(builder.words)], TAG)
    else:
      mends['surplus'] += 1
    return
  step = _STEP.fullmatch(token)
  if not step:
    mends['unknown'] += 1
  elif step[1] == '(':
    builder.begin(step[2])
  elif not builder.open:
    mends['unopened'] += 1
  else:
    height = builder.height(step[2])
    mends['mislabelled'] += height is None
    mends['unclosed'] += height or 0
    mends['empty'] += builder.end_some((height or 0) + 1)


def _count_roots(brackets: Sequence[Bracket]) -> int:
  """Returns the number of constituents that are in no other."""
  roots = 0
  covered = 0
  for bracket in brackets:
    if bracket.stop > covered:
      roots += 1
      covered = bracket.stop
  return roots


def _top_down(tokens: list[str]) -> list[str]:
  """Puts the opening brackets of the in-order form before their first children."""
  ordered = []
  begun = []  # Open constituents: the places of their brackets, and their labels.
  child = None  # The place of the innermost constituent's last child.
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
      same = [height for height, (_, label) in enumerate(begun) if label == token[1:]]
      nearest = same[-1] if same else len(begun) - 1
      child = begun[nearest][0]
      del begun[nearest:]
  return ordered


def _without_words(
  tokens: list[str], words: Sequence[str], mends: collections.Counter
) -> list[str]:
  """Returns the tokens with `XX` in place of words, and counts what differs from the source."""
  places = [place for place, token in enumerate(tokens) if not re.search('[()]', token)]
  leaves = [tokens[place] for place in places]
  wanted = list(map(escaped, words))
  if not set(leaves) & (set(wanted) - {TAG}):
    return tokens
  here = dict.fromkeys(places, 0)  # The number of source words at each leaf.
  matcher = difflib.SequenceMatcher(None, leaves, wanted, autojunk=False)
  for kind, first, last, start, stop in matcher.get_opcodes():
    paired = min(last - first, stop - start)
    for place in places[first : first + paired]:
      here[place] += 1
    missing = stop - start - paired
    here[places[max(first + paired - 1, 0)]] += missing
    mends['missing'] += missing
    mends['surplus'] += last - first - paired
    if kind == 'replace':
      mends['changed'] += paired
  replaced = []
  for place, token in enumerate(tokens):
    replaced += [TAG] * here[place] if place in here else [token]
  return replaced
