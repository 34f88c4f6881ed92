"""Reads a corpus once, and finds pairs that may be unwanted in training."""

import collections
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from transformer.data.config import DataConfig
from transformer.data.encoding import exceed_length_ratio
from transformer.data.text.sources import Corpus
from transformer.data.text.text_files import is_blank
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.data.vocabulary.vocabulary import BYTE_IDS, Vocabulary
from transformer.tools.audit.characters import count_scripts, has_odd_characters
from transformer.tools.audit.misalignment import line_shifts

_CHUNK = 20_000  # pairs per chunk
_RATIO = 3.0  # larger length ratios are reported if the config has no limit
_USUAL = 0.05  # the least fraction of letters in a script that a language is written in
_BYTES = frozenset(BYTE_IDS)

# The kinds of findings; a removed pair is counted under the first of its kinds.
KINDS = (
  'blank',
  'length',
  'ratio',
  'shift',
  'copy',
  'characters',
  'bytes',
  'script',
  'language',
  'shared_pair',
  'shared_source',
  'shared_target',
  'repeat',
)
# Returns whether a line is in another language than the language with the given code.
IsForeign = Callable[[str, str], bool]


class Finding(NamedTuple):
  """The pairs of a corpus with one kind of problem.

  Attributes:
    kind: one of `KINDS`.
    text: a description of the problem.
    indices: the indices of the pairs, ascending, from 0.
  """

  kind: str
  text: str
  indices: np.ndarray


class _Columns(NamedTuple):
  """Facts about the lines of one language, each an array [lines].

  Attributes:
    keys: equal for equal lines.
    blank: whether a line has only white space.
    tokens: the number of tokens, EOS included.
    has_odd: whether a line has unwanted characters.
    has_bytes: whether the vocabulary represents characters as bytes.
    scripts: the script of most letters; '' without letters.
    foreign: whether a line is in another language; False if languages are not identified.
  """

  keys: np.ndarray
  blank: np.ndarray
  tokens: np.ndarray
  has_odd: np.ndarray
  has_bytes: np.ndarray
  scripts: np.ndarray
  foreign: np.ndarray


class Side:
  """The lines of one language of a corpus."""

  def __init__(
    self,
    language: str,
    vocabulary: Vocabulary,
    is_foreign: IsForeign | None = None,
  ):
    """Starts with no lines."""
    self.language = language
    self.letters: collections.Counter[str] = collections.Counter()  # by script
    self._vocabulary = vocabulary
    self._is_foreign = is_foreign
    self._chunks: list[_Columns] = []

  def add(self, lines: Sequence[str]):
    """Examines a chunk of lines."""
    scripts = []
    for line in lines:
      counts = count_scripts(line)
      self.letters.update(counts)
      scripts.append(max(counts, key=lambda script: counts[script], default=''))
    foreign = np.zeros(len(lines), bool)
    if self._is_foreign is not None:
      for index, line in enumerate(lines):
        foreign[index] = self._is_foreign(line, self.language)
    encoded = self._vocabulary.encode_batch(lines)
    columns = _Columns(
      keys=keys_of(lines),
      blank=np.array([is_blank(line) for line in lines], bool),
      tokens=np.array([len(ids) + 1 for ids in encoded], np.int32),
      has_odd=np.array([has_odd_characters(line) for line in lines], bool),
      has_bytes=np.array([not _BYTES.isdisjoint(ids) for ids in encoded], bool),
      scripts=np.array(scripts, object),
      foreign=foreign,
    )
    self._chunks.append(columns)

  def columns(self) -> _Columns:
    """Returns the facts about all lines."""
    return _Columns(*map(np.concatenate, zip(*self._chunks, strict=True)))

  def is_rare(self, scripts: np.ndarray) -> np.ndarray:
    """Returns which of `scripts` are rare in this language."""
    least = _USUAL * self.letters.total()
    rare = [script for script, count in self.letters.items() if count < least]
    return np.isin(scripts, rare)


def find_problems(
  corpus: Corpus,
  config: DataConfig,
  vocabulary: RunVocabulary,
  is_foreign: IsForeign | None = None,
) -> tuple[list[Finding], list[Side], dict[str, np.ndarray]]:
  """Reads a corpus once, in chunks.

  Returns:
    findings: the findings in the order of `KINDS`; without `language` if `is_foreign` is None.
    sides: the source and the target.
    keys: int64 [pairs] of the `source`, the `target` and the `pair`; equal for equal text.
  """
  sides = [
    Side(config.source_language, vocabulary.source, is_foreign),
    Side(config.target_language, vocabulary.target, is_foreign),
  ]
  keys_of_pairs = []
  for first in range(0, max(len(corpus), 1), _CHUNK):
    pairs = corpus[first : first + _CHUNK]
    keys_of_pairs.append(keys_of(pairs))
    sides[0].add([source for source, _ in pairs])
    sides[1].add([target for _, target in pairs])
  source = sides[0].columns()
  target = sides[1].columns()
  findings = [
    *_odd_lengths(source, target, config),
    *_odd_text(source, target),
  ]
  for side, columns in zip(sides, (source, target), strict=True):
    text = f'{side.language}: most letters are of a script that is rare here'
    findings.append(_finding('script', text, side.is_rare(columns.scripts)))
  if is_foreign is not None:
    for side, columns in zip(sides, (source, target), strict=True):
      text = f'{side.language}: another language is far more probable'
      findings.append(_finding('language', text, columns.foreign))
  keys = {
    'source': source.keys,
    'target': target.keys,
    'pair': np.concatenate(keys_of_pairs),
  }
  return findings, sides, keys


def _finding(kind: str, text: str, is_odd: np.ndarray) -> Finding:
  """Returns the finding with the pairs for which `is_odd`, bool [pairs], is True."""
  return Finding(kind, text, np.flatnonzero(is_odd))


def _odd_text(source: _Columns, target: _Columns) -> list[Finding]:
  """Returns findings about the content of lines."""
  is_same = (source.keys == target.keys) & ~source.blank
  has_odd = source.has_odd | target.has_odd
  has_bytes = source.has_bytes | target.has_bytes
  return [
    _finding('copy', 'source equals target', is_same),
    _finding('characters', 'control, invisible, private or broken characters', has_odd),
    _finding('bytes', 'characters that the vocabulary encodes as bytes', has_bytes),
  ]


def _odd_lengths(
  source: _Columns, target: _Columns, config: DataConfig
) -> list[Finding]:
  """Returns findings about lengths.

  Counts match training: a blank pair is neither too long nor uneven.
  """
  blank = source.blank | target.blank
  longer = np.maximum(source.tokens, target.tokens)
  ratio = config.max_length_ratio or _RATIO
  too_long = (
    f'a side has more than data.max_length={config.max_length:,} tokens '
    f'(training drops the pair)'
  )
  uneven = (
    f'a side has more than {ratio:g} times the tokens of the other '
    f'(data.max_length_ratio drops the pair in training)'
  )
  is_uneven = ~blank & exceed_length_ratio(source.tokens, target.tokens, ratio)
  findings = [
    _finding('blank', 'a side is blank (training drops the pair)', blank),
    _finding('length', too_long, ~blank & (longer > config.max_length)),
    _finding('ratio', uneven, is_uneven),
  ]
  shifts = line_shifts(source.tokens, target.tokens)
  for shift in np.unique(shifts[shifts != 0]):
    text = f'the two sides look shifted: line n is translated by line n{shift:+d}'
    findings.append(_finding('shift', text, shifts == shift))
  return findings


def keys_of(items: Sequence[str | tuple[str, str]]) -> np.ndarray:
  """Returns the hash of each line or pair, int64; hashes differ between processes."""
  return np.array([hash(item) for item in items], np.int64)
