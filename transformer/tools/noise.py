"""Noise in training sources: upper case, title case or typos, sampled again every epoch.

  --config.data.augmentations="(('transformer.tools.noise:source_noise', 0.05, 0.05, 0.1),)"

The noise of a sentence is a function of only the sentence and its key. User-defined symbols of the
vocabulary, such as placeholders, stay unchanged.
"""

import itertools
import re
import unicodedata
from collections.abc import Collection

import numpy as np

from transformer.data.batches.augmentation import Augment, replace_sentences, uniform
from transformer.data.batches.shuffling import mix_bits
from transformer.data.config import DataConfig
from transformer.data.encoding import Sentences
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.data.vocabulary.vocabulary import SPACE
from transformer.errors import UserError

_WORD = re.compile(r'\S+')
_WORDS_PER_ERROR = 10
_HOLE = '\ud800'  # Placeholder of a symbol: not a letter, and in no text.
_KEY_SALT = np.uint64(0x9E3779B97F4A7C15)  # Keys differ from other augmentations'.


def source_noise(
  _: DataConfig,
  vocabulary: RunVocabulary,
  upper_case: float,
  title_case: float = 0.0,
  typing_errors: float = 0.0,
) -> Augment:
  """Returns an augmentation that changes the given fractions of source sentences.

  A sentence gets at most one kind of change. Raises `UserError` if a fraction is negative or their
  sum exceeds 1.
  """
  shares = (upper_case, title_case, typing_errors)
  if min(shares) < 0 or sum(shares) > 1:
    raise UserError(
      'the fractions of upper case, title case and typos must be at least 0, and sum to '
      f'at most 1; got {", ".join(map(str, shares))}'
    )
  ways = (lambda text, _: text.upper(), lambda text, _: title_cased(text), misspelled)
  symbols = _pattern_of(vocabulary.source.user_defined_symbols)
  bounds = np.cumsum(shares)

  def augment(
    source: Sentences, target: Sentences, keys: np.ndarray
  ) -> tuple[Sentences, Sentences]:
    keys = mix_bits(keys[0] ^ _KEY_SALT)
    kinds = np.searchsorted(bounds, uniform(keys), side='right')
    chosen = np.flatnonzero(kinds < len(ways))
    texts = []
    for index in chosen:
      text = vocabulary.source.decode(source[index])
      matches = symbols.findall(text)
      change = ways[kinds[index]]
      text = change(symbols.sub(_HOLE, text), int(keys[index]))
      for symbol in matches:
        text = text.replace(_HOLE, symbol, 1)
      texts.append(text)
    return replace_sentences(source, chosen, texts, vocabulary.source), target

  return augment


def _pattern_of(symbols: Collection[str]) -> re.Pattern:
  """Returns a pattern that matches `symbols` in a text; longer symbols take precedence."""
  patterns = []
  for symbol in sorted(symbols, key=len, reverse=True):
    patterns.append(re.escape(symbol).replace(SPACE, r'(?<!\S)'))
  nothing = '(?!)'
  return re.compile('|'.join(patterns) or nothing)


def title_cased(text: str) -> str:
  """Returns a text with the first character of each word in upper case; the rest is unchanged."""
  return _WORD.sub(lambda word: word[0][:1].upper() + word[0][1:], text)


def misspelled(text: str, key: int) -> str:
  """Returns a text with one typo per ten words, and at least one.

  A typo swaps two adjacent letters of a word, deletes a letter, doubles it, or replaces it by
  another letter of the same text, which keeps the script. Combining marks stay with their letter.
  Typos occur only where two letters are adjacent, and may have no effect. `key`, below 2⁶⁴,
  determines the words and their typos.
  """
  letters = _letters(text)
  alphabetic = [letter[0].isalpha() for letter in letters]
  # Indices of letters that are followed by a letter of the same word.
  pairs = itertools.pairwise(alphabetic)
  places = [place for place, pair in enumerate(pairs) if all(pair)]
  if not places:
    return text
  errors = -(-len(text.split()) // _WORDS_PER_ERROR)
  numbers = np.arange(1, 1 + 3 * errors, dtype=np.uint64)
  draws = iter(mix_bits(np.uint64(key) + numbers).tolist())
  for _ in range(errors):
    place = places[next(draws) % len(places)]
    kind = next(draws) % 4
    draw = next(draws)
    left, right = letters[place : place + 2]
    if kind == 0:
      letters[place : place + 2] = right, left
    elif kind == 1:
      letters[place] = ''
    elif kind == 2:
      letters[place] = left * 2
    else:
      letters[place] = letters[places[draw % len(places)]]
  return ''.join(letters)


def _letters(text: str) -> list[str]:
  """Splits a text into characters, each with the combining marks that follow it."""
  letters: list[str] = []
  for character in text:
    if letters and unicodedata.category(character).startswith('M'):
      letters[-1] += character
    else:
      letters.append(character)
  return letters
