"""Reads a corpus once, and counts what is odd about its pairs, with examples."""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
from absl import logging

from transformer.data.audit import characters
from transformer.data.audit.shifts import WINDOW, shifts
from transformer.data.encoding import Sentences, differ_in_length
from transformer.data.repeats import keys_of, keys_of_pairs
from transformer.data.vocabularies import RunVocabulary
from transformer.data.vocabulary import BYTE_IDS

_CHUNK = 40 * WINDOW  # pairs read together
_SECONDS_BETWEEN_LOGS = 20
_LONGEST = 1 << 16  # the last bin of the histogram of lengths, in tokens
_CUT = 200  # characters of a sentence that an example keeps
RATIO = 3.0  # larger ratios of lengths are reported if the config has no limit


@dataclasses.dataclass
class Example:
  """An odd pair: the number of its line, from 1; a note; and its text, which is cut."""

  line: int
  note: str
  source: str
  target: str

  def __post_init__(self):
    self.source, self.target = self.source[:_CUT], self.target[:_CUT]


@dataclasses.dataclass
class Finding:
  """A kind of odd pair: what is odd, the number of pairs, and examples, the worst first."""

  what: str
  count: int
  examples: list[Example]


@dataclasses.dataclass
class Side:
  """One language of a corpus.

  Attributes:
    letters: number of letters.
    unexpected_letters: letters of a script that the language is not written in.
    scripts: numbers of letters by script, the commonest script first.
    tokens: number of tokens, with end tokens; 0 without a vocabulary.
    byte_tokens: tokens that spell a byte of a character that the vocabulary lacks.
    lengths: the median, the 99th percentile and the maximum of the tokens of a sentence.
  """

  language: str
  letters: int = 0
  unexpected_letters: int = 0
  scripts: dict[str, int] = dataclasses.field(default_factory=dict)
  tokens: int = 0
  byte_tokens: int = 0
  lengths: tuple[int, ...] = ()


@dataclasses.dataclass
class Keys:
  """The 64-bit keys, as in `repeats`, of every source, target and pair of a corpus."""

  source: np.ndarray
  target: np.ndarray
  pair: np.ndarray


@dataclasses.dataclass
class CorpusFindings:
  """What is found in a corpus."""

  pairs: int
  sides: tuple[Side, Side]
  findings: list[Finding]
  keys: Keys | None  # None once they are joined with those of other corpora


def examine(corpus, languages: tuple[str, str], vocabulary: RunVocabulary | None,
            max_length: int, max_length_ratio: float, examples: int) -> CorpusFindings:
  """Reads a corpus once, a chunk at a time, and keeps 24 bytes for each pair.

  Args:
    corpus: (source, target) pairs; a slice of it is a list of pairs.
    languages: the codes of the two languages.
    vocabulary: cuts sentences into tokens; None skips the findings about tokens.
    max_length: as in `keep_for_training`.
    max_length_ratio: as in `keep_for_training`, but 0 means `RATIO`.
    examples: how many examples of each finding are kept.

  Returns:
    All findings, with a count of 0 where nothing is odd.
  """
  keys = Keys(*(np.zeros(len(corpus), np.uint64) for _ in range(3)))
  sides = Side(languages[0]), Side(languages[1])
  finder = _Finder(corpus, examples)
  characters_of = _Characters(sides)
  tokens_of = vocabulary and _Tokens(sides, vocabulary, max_length, max_length_ratio or RATIO)
  told = time.monotonic()
  for first in range(0, len(corpus), _CHUNK):
    if time.monotonic() - told > _SECONDS_BETWEEN_LOGS:
      told = time.monotonic()
      logging.info('looked at %s of %s pairs', f'{first:,}', f'{len(corpus):,}')
    texts = finder.read(first)
    here = slice(first, first + len(texts[0]))
    keys.source[here], keys.target[here] = map(keys_of, texts)
    keys.pair[here] = keys_of_pairs(keys.source[here], keys.target[here])
    finder.see_shifts(texts)
    blank = [np.array([not line.strip() for line in side]) for side in texts]
    finder.see('a side is empty or blank', blank[0] | blank[1])
    finder.see('source equals target', (keys.source[here] == keys.target[here]) & ~blank[0])
    characters_of.examine(texts, finder)
    if tokens_of:
      tokens_of.examine(texts, ~(blank[0] | blank[1]), finder)
  characters_of.sum_up()
  if tokens_of:
    tokens_of.sum_up()
  return CorpusFindings(len(corpus), sides, finder.findings(), keys)


class _Characters:
  """Counts the characters of both sides."""

  def __init__(self, sides: tuple[Side, Side]):
    self._sides = sides
    self._expected = [characters.scripts_of(side.language) for side in sides]
    self._scripts = Counter(), Counter()

  def examine(self, texts, finder):
    """Counts a chunk."""
    counts = [characters.count(lines, expected)
              for lines, expected in zip(texts, self._expected, strict=True)]
    for number, (side, count) in enumerate(zip(self._sides, counts, strict=True)):
      # An unknown language is expected in the commonest script of its first chunk.
      self._expected[number] = self._expected[number] or frozenset(list(count.scripts)[:1])
      side.letters += int(count.letters.sum())
      side.unexpected_letters += int(count.unexpected.sum())
      self._scripts[number].update(count.scripts)
      finder.see(f'{side.language}: most letters are of another script',
                 2 * count.unexpected > count.letters, count.unexpected)

    def odd(i):
      return characters.odd(texts[0][i] + texts[1][i])

    for what, numbers in (
        ('control characters', [count.control for count in counts]),
        ('invisible characters', [count.invisible for count in counts]),
        ('broken or private characters', [count.broken for count in counts])):
      finder.see(what, sum(numbers) > 0, sum(numbers), odd)

  def sum_up(self):
    """Writes the scripts into the sides."""
    for side, scripts in zip(self._sides, self._scripts, strict=True):
      side.scripts = dict(scripts.most_common())


class _Tokens:
  """Counts the tokens of both sides, and the bytes among them."""

  def __init__(self, sides: tuple[Side, Side], vocabulary: RunVocabulary, max_length: int,
               ratio: float):
    self._sides, self._vocabularies = sides, (vocabulary.source, vocabulary.target)
    self._max_length, self._ratio = max_length, ratio
    self._histograms = np.zeros((2, _LONGEST + 1), np.int64)
    self._longest = np.zeros(2, np.int64)

  def examine(self, texts, filled, finder):
    """Counts a chunk; `filled` is True for pairs without a blank side."""
    lengths, spelt = np.zeros((2, 2, len(filled)), np.int64)
    for number, side in enumerate(self._sides):
      encoded = Sentences.join(self._vocabularies[number].encode_batch(texts[number]))
      lengths[number] = encoded.lengths + 1  # The end token.
      in_bytes = (encoded.tokens >= BYTE_IDS.start) & (encoded.tokens < BYTE_IDS.stop)
      owner = np.repeat(np.arange(len(filled)), encoded.lengths)
      spelt[number] = np.bincount(owner[in_bytes], minlength=len(filled))
      self._histograms[number] += np.bincount(np.minimum(lengths[number], _LONGEST),
                                              minlength=_LONGEST + 1)
      side.tokens += int(lengths[number].sum())
      side.byte_tokens += int(spelt[number].sum())
    self._longest = np.maximum(self._longest, lengths.max(axis=1))
    longer, shorter = lengths.max(axis=0), lengths.min(axis=0)

    def in_tokens(i):
      return f'{lengths[0, i]:,} and {lengths[1, i]:,} tokens'

    finder.see(f'a side has more than data.max_length={self._max_length:,} tokens',
               filled & (longer > self._max_length), longer, in_tokens)
    finder.see(f'a side has more than {self._ratio:g} times the tokens of the other',
               filled & differ_in_length(*lengths, self._ratio), longer / shorter, in_tokens)
    finder.see('characters that the vocabulary spells in bytes', spelt.any(axis=0),
               spelt.sum(axis=0), lambda i: f'{spelt[0, i]:,} and {spelt[1, i]:,} bytes')

  def sum_up(self):
    """Writes the lengths of sentences into the sides."""
    for side, histogram, longest in zip(self._sides, self._histograms, self._longest, strict=True):
      below = np.cumsum(histogram)
      if below[-1]:
        places = np.searchsorted(below, np.array([0.5, 0.99]) * below[-1])
        side.lengths = (*map(int, places), int(longest))


class _Finder:
  """Counts findings chunk by chunk, and keeps the worst pairs of each."""

  def __init__(self, corpus, examples: int):
    self._corpus, self._examples = corpus, examples
    self._first = 0
    # By finding: the number of pairs, and (−badness, index, note) of the worst pairs.
    self._counts: Counter[str] = Counter()
    self._worst: dict[str, list[tuple[float, int, str]]] = {}
    self._shifted = (0, 0, 0)  # The last shifted lines: first, one after the last, and shift.

  def read(self, first: int) -> list[list[str]]:
    """Returns the sources and targets of a chunk; `see` then refers to this chunk."""
    pairs = self._corpus[first:first + _CHUNK]
    self._first = first
    return [list(side) for side in zip(*pairs, strict=True)]

  def see(self, what: str, which: np.ndarray, badness: np.ndarray | None = None,
          note: Callable[[int], str] = lambda _: ''):
    """Counts the chunk's pairs with a finding, and keeps the worst; among equals, the first."""
    places = np.flatnonzero(which)
    self._counts[what] += len(places)
    bad = np.zeros(len(places)) if badness is None else -badness[places]
    chosen = np.lexsort((places, bad))[:self._examples]
    self._keep(what, [(float(bad[i]), self._first + int(places[i]), note(int(places[i])))
                      for i in chosen])

  def see_shifts(self, texts, what='the two sides look shifted'):
    """Counts the windows of lines that look shifted; adjacent windows make one example."""
    self.see(what, np.zeros(0, bool))
    source, target = (np.fromiter(map(len, side), np.int64, len(side)) for side in texts)
    for start, shift in shifts(source, target):
      first, last = (self._first + min(each, len(source)) for each in (start, start + WINDOW))
      self._counts[what] += last - first
      if self._shifted[1:] == (first, shift):
        first = self._shifted[0]
        self._worst[what] = [each for each in self._worst[what] if each[1] != first]
      self._shifted = first, last, shift
      lines = f'{abs(shift)} line{"s" * (abs(shift) > 1)}'
      self._keep(what, [(float(first - last), first,
                         f'to line {last}: the target seems to come {lines} too '
                         f'{"late" if shift > 0 else "early"}')])

  def findings(self) -> list[Finding]:
    """Returns all findings."""
    return [Finding(what, count, [
        Example(index + 1, note, *self._corpus[index])
        for _, index, note in self._worst[what]]) for what, count in self._counts.items()]

  def _keep(self, what, more):
    self._worst[what] = sorted(self._worst.get(what, []) + more)[:self._examples]
