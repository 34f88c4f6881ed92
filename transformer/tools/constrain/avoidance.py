"""Words that must not appear in translations, as an automaton over the vocabulary's pieces."""

import collections
import unicodedata
from collections.abc import Sequence

import numpy as np

from transformer.data.batch import BOS_ID, PAD_ID, UNK_ID
from transformer.data.vocabulary.vocabulary import BYTE_IDS, SPACE, Vocabulary
from transformer.errors import UserError

# The tables take five bytes per state and token.
_MAX_CELLS = 2**27
# A state is a set of pairs: the index of a phrase, and the number of its bytes that were read.
_State = frozenset[tuple[int, int]]
# A byte of UTF-8 text, and whether it belongs to a letter, a digit or a combining mark. A piece
# that is a byte may be part of any character, and is not counted as part of a word.
_Byte = tuple[int, bool]


def build_automaton(
  phrases: Sequence[str], vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray]:
  """Builds the automaton that keeps phrases out of translations.

  A phrase is forbidden as whole words: with no letter, digit or combining mark before or after it.
  It is forbidden in any segmentation, and only in the given case. A longer word that starts with
  the phrase is allowed if one piece extends beyond the end of the phrase. Otherwise a search would
  start the forbidden word and could not finish it.

  Returns:
    next_ZN: int32, the state after each of Z states and each token; the initial state is 0.
    forbidden_ZN: boolean, the tokens that must not follow in each state.
  """
  texts = [_text_of_token(vocabulary, token) for token in range(vocabulary.size)]
  encoded = [phrase.strip().encode() for phrase in phrases]
  tokens_by_first = collections.defaultdict(list)
  for token, text in enumerate(texts):
    if text:
      tokens_by_first[text[0][0]].append(token)

  indices: dict[_State, int] = {}
  waiting: collections.deque[_State] = collections.deque()

  def state_index(state):
    if state not in indices:
      if (len(indices) + 1) * vocabulary.size > _MAX_CELLS:
        raise UserError(
          f'the phrases to avoid must have at most about '
          f'{_MAX_CELLS // vocabulary.size:,} bytes of UTF-8 in total; got '
          f'{sum(map(len, encoded)):,}; remove some'
        )
      indices[state] = len(indices)
      waiting.append(state)
    return indices[state]

  # A sentence starts as if a space preceded it.
  state_index(_next_state(frozenset(), *_spell(' '), encoded))
  transitions = [_read(frozenset(), text, encoded) for text in texts]
  usual_N = np.asarray(
    [state_index(next_state) for next_state, _ in transitions], np.int32
  )
  usual_forbidden_N = np.asarray([forbidden for _, forbidden in transitions])
  next_ZN = []
  forbidden_ZN = []
  while waiting:
    state = waiting.popleft()
    next_N = usual_N.copy()
    forbidden_N = usual_forbidden_N.copy()
    next_N[[PAD_ID, BOS_ID]] = indices[state]  # PAD and BOS do not change the text.
    firsts = {encoded[i][n] for i, n in state if n < len(encoded[i])}
    for first in firsts:
      for token in tokens_by_first[first]:
        next_state, forbidden_N[token] = _read(state, texts[token], encoded)
        next_N[token] = state_index(next_state)
    next_ZN.append(next_N)
    forbidden_ZN.append(forbidden_N)
  return np.stack(next_ZN), np.stack(forbidden_ZN)


def _text_of_token(vocabulary: Vocabulary, token: int) -> list[_Byte]:
  """Returns the text of a token as `Vocabulary.decode` writes it; it may be empty."""
  if token == UNK_ID:
    return _spell(vocabulary.decode([UNK_ID]))
  if token < UNK_ID:
    return []
  if token in BYTE_IDS:
    value = token - BYTE_IDS.start
    if value >= 128:
      return [(value, False)]
    return _spell(chr(value))
  return _spell(vocabulary.piece(token).replace(SPACE, ' '))


def _spell(text: str) -> list[_Byte]:
  """Returns the bytes of a text; a line feed counts as a space."""
  spelled = []
  for character in text.replace('\n', ' '):
    in_word = is_in_word(character)
    spelled += [(value, in_word) for value in character.encode()]
  return spelled


def is_in_word(character: str) -> bool:
  """Returns whether a character is a letter, a digit or a combining mark, such as a vowel sign."""
  return character.isalnum() or unicodedata.category(character).startswith('M')


def _has_ended(state: _State, encoded: Sequence[bytes]) -> bool:
  """Returns whether the last byte of a phrase was just read."""
  return any(n == len(encoded[i]) for i, n in state)


def _read(state: _State, text: Sequence[_Byte], encoded) -> tuple[_State, bool]:
  """Returns the state after a text, and whether a phrase ends with it or with a word inside it."""
  forbidden = False
  for index, byte in enumerate(text):
    _, in_word = byte
    if index > 0 and not in_word:
      forbidden |= _has_ended(state, encoded)
    state = _next_state(state, byte, encoded)
  return state, forbidden or _has_ended(state, encoded)


def _next_state(state: _State, byte: _Byte, encoded) -> _State:
  """Returns the state after a byte. A phrase may start wherever no word continues."""
  value, in_word = byte
  result = set()
  for i, n in state:
    if n < len(encoded[i]) and encoded[i][n] == value:
      result.add((i, n + 1))
  if not in_word:
    result |= {(i, 0) for i in range(len(encoded))}
  return frozenset(result)
