"""Reads a corpus once, and counts what is odd about its pairs, with examples."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from transformer.data.batches.shuffling import mix
from transformer.data.config import DataConfig
from transformer.data.encoding import Sentences, differ_in_length
from transformer.data.text.text_files import is_blank
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.data.vocabulary.vocabulary import BYTE_IDS, Vocabulary
from transformer.tools.audit import characters
from transformer.tools.audit.characters import FIRST_SCRIPT, ODD
from transformer.tools.audit.shifts import shifts

_CHUNK = 20_000  # pairs read together
_CUT = 200  # characters of a sentence that an example keeps
_RATIO = 3.0  # larger ratios of lengths are reported if the config has no limit
_USUAL = (
  0.05  # the least share of the letters of a script that a language is written in
)


class Findings:
  """Kinds of odd pairs of a corpus: their number, and the worst of each kind."""

  def __init__(self, corpus, examples: int):
    self._corpus = corpus
    self._examples = examples
    self._kinds: dict[str, tuple[int, list]] = {}

  def add(
    self,
    what: str,
    badness: np.ndarray,
    note: Callable[[int], str] = lambda _: '',
    first: int = 0,
  ):
    """Counts the pairs of a kind, whose `badness` is above 0; keeps the worst, or the first.

    The pairs begin at index `first` of the corpus; `note` describes one by its index in `badness`.
    """
    places = np.flatnonzero(badness)
    bad = badness[places].astype(float)
    worst = []
    for number in np.argsort(-bad, kind='stable')[: self._examples]:
      place = int(places[number])
      worst.append((-bad[number], first + place, note(place)))
    self.keep(what, len(places), worst)

  def keep(self, what: str, count: int, worst: list[tuple[float, int, str]]):
    """Adds to the number of a kind; an example has its badness below 0, its index and its note."""
    before, kept = self._kinds.get(what, (0, []))
    self._kinds[what] = (before + count, sorted(kept + worst)[: self._examples])

  def as_json(self) -> list[dict[str, Any]]:
    """Returns all kinds, the commonest first; lines are numbered from 1, and text is cut."""
    found = []
    for what, (count, kept) in sorted(
      self._kinds.items(), key=lambda item: -item[1][0]
    ):
      examples = [self._example(index, note) for _, index, note in kept]
      found.append({'what': what, 'count': count, 'examples': examples})
    return found

  def _example(self, index: int, note: str) -> dict[str, Any]:
    """Returns the line number, the note and the beginning of the texts of a pair."""
    ((source, target),) = self._corpus[index : index + 1]
    return {
      'line': index + 1,
      'note': note,
      'source': source[:_CUT],
      'target': target[:_CUT],
    }


class _Side:
  """Counts the letters and tokens of one language of a corpus."""

  def __init__(self, language: str, vocabulary: Vocabulary, size: int):
    self._language = language
    self._vocabulary = vocabulary
    self.characters = np.zeros(size, np.int32)
    self.tokens = np.zeros(size, np.int32)
    self._letters = np.zeros(len(characters.script_table()[0]), np.int64)
    self._usual = None

  def examine(self, lines: list[str], here: slice, findings: Findings) -> np.ndarray:
    """Counts a chunk; returns the odd characters and the tokens that are bytes, int [2, lines]."""
    self.characters[here] = [*map(len, lines)]
    kinds = characters.count_kinds(lines)
    letters = kinds[:, FIRST_SCRIPT:]
    self._letters += letters.sum(0)
    if self._usual is None:
      self._usual = self._letters >= _USUAL * self._letters.sum()
    rare = letters[:, ~self._usual].sum(1)
    findings.add(
      f'{self._language}: most letters are of a script that is rare here',
      np.where(2 * rare > letters.sum(1), rare, 0),
      first=here.start,
    )
    encoded = Sentences.join(self._vocabulary.encode_batch(lines))
    self.tokens[here] = encoded.lengths + 1  # The end token.
    spelt = (encoded.tokens >= BYTE_IDS.start) & (encoded.tokens < BYTE_IDS.stop)
    owner = np.repeat(np.arange(len(lines)), encoded.lengths)
    in_bytes = np.bincount(owner[spelt], minlength=len(lines))
    return np.stack([kinds[:, ODD], in_bytes])

  def as_json(self) -> dict[str, Any]:
    """Returns the letters by script, and the median, 99th percentile and maximum of the tokens."""
    names = characters.script_table()[0]
    scripts = {}
    for number in np.argsort(-self._letters, kind='stable'):
      if self._letters[number]:
        scripts[names[number]] = int(self._letters[number])
    lengths = []
    if self.tokens.any():
      lengths = np.percentile(
        self.tokens, (50, 99, 100), method='inverted_cdf'
      ).tolist()
    return {
      'language': self._language,
      'scripts': scripts,
      'lengths': list(map(int, lengths)),
    }


def examine(
  corpus, config: DataConfig, vocabulary: RunVocabulary, examples: int
) -> tuple[Findings, list[dict[str, Any]], np.ndarray]:
  """Reads a corpus once, a chunk at a time.

  Returns the findings, what is said of the two sides, and the keys of all sources, targets and
  pairs, uint64 [3, pairs].
  """
  findings = Findings(corpus, examples)
  keys = np.zeros((3, len(corpus)), np.uint64)
  sides = [
    _Side(config.source_language, vocabulary.source, len(corpus)),
    _Side(config.target_language, vocabulary.target, len(corpus)),
  ]
  for first in range(0, len(corpus), _CHUNK):
    pairs = corpus[first : first + _CHUNK]
    here = slice(first, first + len(pairs))
    sources, targets = map(list, zip(*pairs, strict=True))
    keys[:, here] = _keys_of_pairs(sources, targets)
    blank = np.array([any(map(is_blank, pair)) for pair in pairs])
    findings.add('a side is blank (training drops the pair)', blank, first=first)
    same = keys[0, here] == keys[1, here]
    findings.add('source equals target', same & ~blank, first=first)
    _add_characters(findings, sides, (sources, targets), here)
    _add_lengths(findings, config, [side.tokens[here] for side in sides], blank, first)
  for first, last, shift in shifts(sides[0].characters, sides[1].characters):
    note = f'to line {last}: line n seems to be translated by line n{shift:+d}'
    findings.keep(
      'the two sides look shifted', last - first, [(first - last, first, note)]
    )
  return findings, [side.as_json() for side in sides], keys


def _keys_of_pairs(sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
  """Returns the keys of sources, targets and pairs, uint64 [3, pairs]."""
  source = keys_of(sources)
  target = keys_of(targets)
  return np.stack([source, target, mix(mix(source) + target)])


def _add_characters(
  findings: Findings, sides: Sequence[_Side], texts: Sequence[list[str]], here: slice
):
  """Adds what is odd about the characters of a chunk."""
  odd = 0
  in_bytes = 0
  for side, lines in zip(sides, texts, strict=True):
    odd_of_side, bytes_of_side = side.examine(lines, here, findings)
    odd += odd_of_side
    in_bytes += bytes_of_side
  sources, targets = texts
  findings.add(
    'control, invisible, private or broken characters',
    odd,
    lambda i: characters.odd_codes(sources[i] + targets[i]),
    here.start,
  )
  findings.add(
    'characters that the vocabulary spells in bytes',
    in_bytes,
    lambda i: f'{in_bytes[i]:,} bytes',
    here.start,
  )


def _add_lengths(
  findings: Findings,
  config: DataConfig,
  tokens: Sequence[np.ndarray],
  blank: np.ndarray,
  first: int,
):
  """Adds what is odd about the lengths of a chunk."""
  source, target = tokens
  longer = np.maximum(source, target)
  ratio = config.max_length_ratio or _RATIO

  def note(i):
    return f'{source[i]:,} and {target[i]:,} tokens'

  findings.add(
    f'a side has more than data.max_length={config.max_length:,} tokens (training drops the pair)',
    longer * (~blank & (longer > config.max_length)),
    note,
    first,
  )
  findings.add(
    f'a side has more than {ratio:g} times the tokens of the other '
    f'(data.max_length_ratio drops the pair in training)',
    longer
    / np.minimum(source, target)
    * (~blank & differ_in_length(source, target, ratio)),
    note,
    first,
  )


def keys_of(lines: Sequence[str]) -> np.ndarray:
  """Returns a 64-bit key of each line, the same on every machine."""
  digests = (
    hashlib.blake2b(line.encode('utf-8', 'surrogatepass'), digest_size=8).digest()
    for line in lines
  )
  return np.frombuffer(b''.join(digests), '<u8').astype(np.uint64)
