"""Trees as sequences that a model can write, and trees of any sequence that it has written."""

import collections
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from transformer.tools.parse.treebank import TAG, Builder, Tree, escaped, split_words, walk

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
  if not in_order:
    return ' '.join(
      step + label if word is None else leaves[word] for step, label, word in walk(tree)
    )
  tokens, waiting = [], []  # The labels of open constituents; None once they are written.
  for step, label, word in walk(tree):
    if step == '(':
      waiting.append(label)
      continue
    tokens.append(step + label if word is None else leaves[word])
    if step:
      waiting.pop()
    if waiting and waiting[-1] is not None:
      tokens.append(f'{waiting[-1]}(')
      waiting[-1] = None
  return ' '.join(tokens)


def delinearise(text: str, words: Sequence[str]) -> Mended:
  """Reads a tree in any form of `linearise`; makes a tree of `words` from any other text too.

  A closing bracket closes the nearest open constituent with its label, and all inside it.
  """
  builder, mends = Builder(), collections.Counter()
  for token in _without_words(_top_down(split_words(text)), words, mends):
    step = _STEP.fullmatch(token)
    if token == TAG and len(builder.words) < len(words):
      builder.add(words[len(builder.words)], TAG)
    elif token == TAG or not step:
      mends['surplus' if token == TAG else 'unknown'] += 1
    elif step[1] == '(':
      builder.begin(step[2])
    elif not builder.open:
      mends['unopened'] += 1
    else:
      height = builder.height(step[2])
      mends['mislabelled'] += height is None
      mends['unclosed'] += height or 0
      mends['empty'] += sum(not builder.end() for _ in range((height or 0) + 1))
  mends['unclosed'] += len(builder.open)
  mends['empty'] += sum(not builder.end() for _ in range(len(builder.open)))

  present = len(builder.words)
  roots, covered = 0, 0
  for bracket in builder.brackets:
    if bracket.stop > covered:
      roots, covered = roots + 1, bracket.stop
  mends['missing'] += len(words) - present
  mends['no tree'] += not roots and bool(words)
  mends['several roots'] += roots > 1 or (roots == 1 and builder.brackets[0][1:] != (0, present))
  if present and roots and builder.brackets[0][1:] == (0, present):
    builder.brackets[0] = builder.brackets[0]._replace(stop=len(words))
  for word in words[present:]:
    builder.add(word, TAG)
  return Mended(builder.tree(), {kind: count for kind, count in sorted(mends.items()) if count})


def _top_down(tokens: list[str]) -> list[str]:
  """Puts the opening brackets of the in-order form before their first children."""
  ordered, begun, child = [], [], None  # The place of the innermost constituent's last child.
  for token in tokens:
    if opening := _BEGUN.fullmatch(token):
      begun.append((len(ordered) if child is None else child, opening[1]))
      ordered.insert(begun[-1][0], f'({opening[1]}')
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
  leaves = [place for place, token in enumerate(tokens) if not re.search('[()]', token)]
  wanted = list(map(escaped, words))
  if not {tokens[place] for place in leaves} & (set(wanted) - {TAG}):
    return tokens
  here = collections.Counter()  # The number of source words at each leaf.
  for kind, first, last, start, stop in difflib.SequenceMatcher(
    None, [tokens[place] for place in leaves], wanted, autojunk=False
  ).get_opcodes():
    paired = min(last - first, stop - start)
    here.update(leaves[first : first + paired])
    missing = stop - start - paired
    here[leaves[max(first + paired - 1, 0)]] += missing
    mends['missing'] += missing
    mends['surplus'] += last - first - paired
    mends['changed'] += paired if kind == 'replace' else 0
  rest = set(range(len(tokens))).difference(leaves)
  return [
    out
    for place, token in enumerate(tokens)
    for out in ([token] if place in rest else [TAG] * here[place])
  ]
