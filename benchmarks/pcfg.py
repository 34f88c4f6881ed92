"""Parses with a probabilistic grammar that is read off the trees of a treebank.

  python benchmarks/pcfg.py --train=DIR/train.mrg --test=DIR/dev.mrg

The grammar has the rules of the trees with their relative frequencies (Charniak, 1996, "Tree-bank
grammars"), computed by NLTK. Like the model of configs/parsing.py, it reads words without tags.
--parents adds the parent's label to each label (Johnson, 1998); with --siblings=N, the label of a
binarized rule keeps N of its children. Words that are rare (one occurrence) or unknown are replaced
by their shape. The score is EVALB's on sentences of at most --longest words. Packages:
benchmarks/requirements.txt.
"""

import collections
import sys
import time
from pathlib import Path

from absl import flags

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import nltk
import numpy as np

from transformer.system import command_line
from transformer.tools.parse import bracketing
from transformer.tools.parse.linearization import delinearize, linearize
from transformer.tools.parse.treebank import Tree, bracketed, parse_trees, read_trees

_TRAIN = flags.DEFINE_string('train', None, 'The trees for the grammar.', required=True)
_TEST = flags.DEFINE_string('test', None, 'The trees to parse.', required=True)
_LONGEST = flags.DEFINE_integer(
  'longest', bracketing.SHORT, 'The maximum number of words per sentence.'
)
_SENTENCES = flags.DEFINE_integer(
  'sentences', None, 'The number of sentences, evenly spaced (default: all).'
)
_SIBLINGS = flags.DEFINE_integer(
  'siblings', None, 'Children that a rule remembers (default: all).'
)
_PARENTS = flags.DEFINE_bool(
  'parents', False, 'Annotate labels with the label above them.'
)
# Marks the artificial nodes of binary rules; labels such as PRT|ADVP have a |.
_CHILD = '¦'


def shape(word: str) -> str:
  """Returns the features of a rare word: capital, digit, hyphen and the last two letters."""
  marks = ''.join(
    mark
    for mark, has in (
      ('A', word[:1].isupper()),
      ('0', any(map(str.isdigit, word))),
      ('-', '-' in word),
    )
    if has
  )
  return f'<{marks}{word[-2:].lower() if word.isalpha() else ""}>'


class Grammar:
  """Binary rules and words with their log-probabilities; a CKY parser."""

  def __init__(self, trees: list[Tree], siblings: int | None, parents: bool):
    """Estimates the rules from `trees`."""
    counts = collections.Counter(word for tree in trees for word in tree.words)
    self._known = {word for word, count in counts.items() if count > 1}
    productions, roots = [], collections.Counter()
    for tree in trees:
      read = nltk.Tree.fromstring(bracketed(tree))
      read.collapse_unary(collapsePOS=True, collapseRoot=True)
      read.chomsky_normal_form(
        horzMarkov=siblings, vertMarkov=int(parents), childChar=_CHILD
      )
      for place in read.treepositions('leaves'):
        read[place] = self._seen(read[place])
      productions += read.productions()
      roots[read.label()] += 1
    rules = nltk.induce_pcfg(nltk.Nonterminal('TOP'), productions).productions()
    numbers = collections.defaultdict(lambda: len(numbers))
    binary, self._words = [], collections.defaultdict(list)
    for rule in rules:
      parent = numbers[rule.lhs().symbol()]
      if len(rule.rhs()) == 2:
        left, right = (numbers[symbol.symbol()] for symbol in rule.rhs())
        binary.append((parent, left, right, np.log(rule.prob())))
      else:
        self._words[rule.rhs()[0]].append((parent, np.log(rule.prob())))
    self.labels = list(numbers)
    self._parents, self._lefts, self._rights, logs = zip(*sorted(binary), strict=True)
    self._parents, self._lefts, self._rights = map(
      np.array, (self._parents, self._lefts, self._rights)
    )
    self._logs = np.array(logs, np.float32)
    self._roots = np.full(len(numbers), -np.inf, np.float32)
    for label, count in roots.items():
      self._roots[numbers[label]] = np.log(count / len(trees))
    # A word of an unknown shape is treated as any rare word.
    rare = collections.Counter()
    for word, found in self._words.items():
      rare.update(
        {label: np.exp(log) for label, log in found if word not in self._known}
      )
    self._rare = [(label, np.log(share)) for label, share in rare.items()]
    self.rules = len(binary)

  def _seen(self, word: str) -> str:
    return word if word in self._known else shape(word)

  def parse(self, words: tuple[str, ...]) -> tuple[nltk.Tree | None, float]:
    """Returns the most likely tree and its log-probability; None if there is no tree."""
    length = len(words)
    chart = np.full((length, length + 1, len(self.labels)), -np.inf, np.float32)
    for place, word in enumerate(words):
      for label, log in self._words.get(self._seen(word), self._rare):
        chart[place, place + 1, label] = log
    # The labels that begin at each position, and that end there: few, so few rules are tried.
    begin, end = np.zeros((2, length + 1, len(self.labels)), bool)
    for span in range(1, length + 1):
      for start in range(length - span + 1):
        stop = start + span
        rules = np.flatnonzero(begin[start, self._lefts] & end[stop, self._rights])
        if span > 1 and rules.size:
          best = self._logs[rules] + np.max(
            chart[start, start + 1 : stop][:, self._lefts[rules]]
            + chart[start + 1 : stop, stop][:, self._rights[rules]],
            axis=0,
          )
          heads, starts = np.unique(self._parents[rules], return_index=True)
          chart[start, stop, heads] = np.maximum.reduceat(best, starts)
        found = np.isfinite(chart[start, stop])
        begin[start] |= found
        end[stop] |= found
    whole = chart[0, length] + self._roots
    if not np.isfinite(whole.max()):
      return None, -np.inf
    tree = self._read(chart, words, int(whole.argmax()))
    tree.un_chomsky_normal_form(childChar=_CHILD)
    return tree, float(whole.max())

  def _read(self, chart: np.ndarray, words: tuple[str, ...], root: int) -> nltk.Tree:
    """Returns the tree with the best score in the chart."""
    tree = nltk.Tree(self.labels[root], [])
    ahead = [(tree, root, 0, len(words))]
    while ahead:
      node, label, start, stop = ahead.pop()
      if stop == start + 1:
        node.append(words[start])
        continue
      first, last = np.searchsorted(self._parents, [label, label + 1])
      rules = slice(first, last)
      scores = (
        chart[start, start + 1 : stop][:, self._lefts[rules]]
        + chart[start + 1 : stop, stop][:, self._rights[rules]]
        + self._logs[rules]
      )
      cut, rule = np.unravel_index(scores.argmax(), scores.shape)
      middle, rule = start + 1 + int(cut), first + int(rule)
      for child, one, two in (
        (self._lefts[rule], start, middle),
        (self._rights[rule], middle, stop),
      ):
        node.append(nltk.Tree(self.labels[child], []))
        ahead.append((node[-1], int(child), one, two))
    return tree


def main(_):
  """Prints the scores of the grammar."""
  grammar = Grammar(read_trees(_TRAIN.value), _SIBLINGS.value, _PARENTS.value)
  print(f'{grammar.rules:,} binary rules, {len(grammar.labels):,} labels', flush=True)
  trees = [
    tree for tree in read_trees(_TEST.value) if len(tree.words) <= _LONGEST.value
  ]
  count = min(_SENTENCES.value or len(trees), len(trees))
  trees = [trees[number * len(trees) // count] for number in range(count)]
  answers, failed, started = [], 0, time.perf_counter()
  for tree in trees:
    found, _ = grammar.parse(tree.words)
    failed += found is None
    text = ''
    if found is not None:
      # Here each word has a bracket; the scores take the words from the reference.
      text = linearize(
        next(parse_trees([found.pformat(margin=sys.maxsize)], 'a parse'))
      )
    answers.append(delinearize(text, tree.words))
  for name, score in bracketing.score(trees, answers).items():
    print(f'{name:10} {score:6.2f}')
  print(f'no parse {failed} of {len(trees)}, {time.perf_counter() - started:.0f} s')


if __name__ == '__main__':
  command_line.run(main, use_compilation_cache=False)
