"""Words that must not appear in translations, as an automaton over the pieces of a vocabulary."""

import collections
from collections.abc import Sequence

import numpy as np

from transformer.data.batch import BOS_ID, PAD_ID, UNK_ID
from transformer.data.vocabulary import BYTE_IDS, SPACE, Vocabulary
from transformer.errors import UserError
from transformer.ops.steering import Automaton

# The tables take five bytes for each state and piece.
_MOST_CELLS = 2**27
# A character; or a byte, as its piece, of a character that has no piece.
_Unit = str
# A state is a set of pairs: the number of a phrase, and how many of its units were read.
_State = frozenset[tuple[int, int]]


def avoid(phrases: Sequence[str], vocabulary: Vocabulary) -> Automaton:
  """Builds the automaton that keeps phrases out of translations.

  A phrase is forbidden as whole words: where no letter or digit stands before or after it. A
  character before it that the vocabulary spells in bytes counts as no letter. A phrase is
  forbidden however it is segmented into pieces, and with its own upper and lower case only. A
  longer word that begins with the phrase is allowed if one piece goes beyond the end of the phrase.
  Otherwise a search would begin the forbidden word and could not end it.

  Args:
    phrases: words, or sequences of words as they stand in text; none is blank.
    vocabulary: gives the pieces.

  Returns:
    The automaton, of NumPy arrays.

  Raises:
    UserError: the tables for so many phrases would be too large.
  """
  texts = [_units_of_piece(vocabulary, token) for token in range(vocabulary.size)]
  characters = {unit for text in texts for unit in text}
  wanted = [_units(phrase.strip(), characters) for phrase in phrases]
  tokens_by_first = collections.defaultdict(list)
  for token, text in enumerate(texts):
    if text:
      tokens_by_first[text[0]].append(token)

  numbers: dict[_State, int] = {}
  waiting: collections.deque[_State] = collections.deque()

  def number(state):
    if state not in numbers:
      if (len(numbers) + 1) * vocabulary.size > _MOST_CELLS:
        raise UserError(f'the phrases to avoid must have at most about '
                        f'{_MOST_CELLS // vocabulary.size:,} characters in all; there are '
                        f'{sum(map(len, wanted)):,}; leave some out')
      numbers[state] = len(numbers)
      waiting.append(state)
    return numbers[state]

  # A sentence begins as if a space stood before it.
  number(_after(frozenset(), ' ', wanted))
  read = [_read(frozenset(), text, wanted) for text in texts]
  usual_N = np.asarray([number(after) for after, _ in read], np.int32)
  usual_forbidden_N = np.asarray([forbidden for _, forbidden in read])
  next_ZN, forbidden_ZN = [], []
  while waiting:
    state = waiting.popleft()
    next_N, forbidden_N = usual_N.copy(), usual_forbidden_N.copy()
    next_N[[PAD_ID, BOS_ID]] = numbers[state]  # The text goes on as if they were not there.
    for first in {wanted[i][n] for i, n in state if n < len(wanted[i])}:
      for token in tokens_by_first[first]:
        after, forbidden_N[token] = _read(state, texts[token], wanted)
        next_N[token] = number(after)
    next_ZN.append(next_N)
    forbidden_ZN.append(forbidden_N)
  return Automaton(np.stack(next_ZN), np.stack(forbidden_ZN))


def _units_of_piece(vocabulary: Vocabulary, token: int) -> Sequence[_Unit]:
  """Returns the units of a piece; none for a token that is no text."""
  if token == UNK_ID:
    return vocabulary.decode([UNK_ID])
  if token < UNK_ID:
    return ()
  piece = vocabulary.piece(token)
  if token in BYTE_IDS:
    byte = token - BYTE_IDS.start
    return (chr(byte) if byte < 128 else piece,)
  return piece.replace(SPACE, ' ')


def _units(phrase: str, characters: set[_Unit]) -> list[_Unit]:
  """Returns the units of a phrase: what has no piece as a character is spelt in bytes."""
  return [unit for character in phrase
          for unit in ([character] if character in characters
                       else [f'<0x{byte:02X}>' for byte in character.encode()])]


def _ends_word(unit: _Unit) -> bool:
  """Returns whether a word may begin after a unit; a byte may be the end of a quotation mark."""
  return len(unit) > 1 or not unit.isalnum()


def _has_ended(state: _State, wanted: Sequence[Sequence[_Unit]]) -> bool:
  """Returns whether a whole phrase was just read."""
  return any(n == len(wanted[i]) for i, n in state)


def _read(state: _State, text: Sequence[_Unit], wanted) -> tuple[_State, bool]:
  """Returns the state after a text, and whether a phrase ends with it, or with a word inside it."""
  forbidden = False
  for number, unit in enumerate(text):
    forbidden |= number > 0 and _ends_word(unit) and _has_ended(state, wanted)
    state = _after(state, unit, wanted)
  return state, forbidden or _has_ended(state, wanted)


def _after(state: _State, unit: _Unit, wanted) -> _State:
  """Returns the state after a unit. A phrase may begin after each unit that ends a word."""
  grown = {(i, n + 1) for i, n in state if n < len(wanted[i]) and wanted[i][n] == unit}
  if _ends_word(unit):
    grown |= {(i, 0) for i in range(len(wanted))}
  return frozenset(grown)
