"""A constraint: words that translations must contain or must not contain, and prefixes."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from absl import logging

from transformer.data.batch import BOS_ID, PAD_ID, UNK_ID
from transformer.data.text.text_files import check_lines, is_blank
from transformer.data.vocabulary.vocabulary import BYTE_IDS, SPACE, Vocabulary
from transformer.decoding.constraint import Constraint
from transformer.errors import UserError
from transformer.tools.constrain.avoidance import build_automaton, is_in_word
from transformer.tools.constrain.beam_allocation import allocate_beams
from transformer.tools.constrain.phrases import build_matcher
from transformer.tools.constrain.prefixes import (
  check_lengths,
  force_prefix,
  prefix_tokens,
)


class LexicalConstraint(Constraint):
  """Required words, forbidden words and prefixes of translations; words match as whole words."""

  def __init__(
    self,
    vocabulary: Vocabulary,
    required: Sequence[Sequence[str]] = (),
    avoided: Sequence[str] = (),
    prefixes: Sequence[str] = (),
  ):
    """Encodes each sentence's required phrases and prefix, and the forbidden phrases of all."""
    lists = [required] if isinstance(required, str) else required
    for lines in (prefixes, avoided, *lists):
      check_lines(lines)
    self._prefixes = prefixes
    self._phrases = [
      [encode_phrase(vocabulary, phrase) for phrase in _distinct(phrases)]
      for phrases in required
    ]
    avoided = [vocabulary.round_trip(phrase) for phrase in avoided]
    automaton = build_automaton(avoided, vocabulary) if avoided else None
    continues = np.asarray(continue_words(vocabulary)) if any(self._phrases) else None
    self.tables = (automaton, continues)

  def sentence_arrays(self, vocabulary, limits, max_length, offset):
    prefixes = prefix_tokens(
      self._prefixes or [''] * len(limits), vocabulary, limits, max_length, offset
    )
    phrases = self._phrases or [[]] * len(limits)
    if len(phrases) != len(limits):
      raise UserError(
        f'each line needs a list of phrases, which may be empty; got {len(phrases)} lists for '
        f'{len(limits)} lines'
      )
    lengths = [sum(map(len, line_phrases)) for line_phrases in phrases]
    check_lengths('the phrases that must appear in', lengths, limits, offset)
    sentence_arrays = []
    for prefix_P, line_phrases in zip(prefixes, phrases, strict=True):
      steered = self.tables[0] is not None or prefix_P.any()
      if not steered and not line_phrases:
        sentence_arrays.append(None)
        continue
      tokens_JL = _padded(line_phrases) if line_phrases else None
      sentence_arrays.append((prefix_P if steered else None, tokens_JL))
    return sentence_arrays

  @staticmethod
  def start(sentence_arrays, shape):
    return jnp.zeros(shape, jnp.int32)

  @staticmethod
  def allow(sentence_arrays, tables, t, last_BW, state_BW, log_probs_BWN):
    prefix_BP, _ = sentence_arrays
    automaton, _ = tables
    if prefix_BP is None:
      return log_probs_BWN, state_BW
    allowed_BWN = log_probs_BWN
    if automaton is not None:
      next_ZN, forbidden_ZN = automaton
      # The token before the first one is BOS, which is not part of the text.
      state_BW = jnp.where(t > 0, next_ZN[state_BW, last_BW], state_BW)
      allowed_BWN = jnp.where(forbidden_ZN[state_BW], -jnp.inf, log_probs_BWN)
    return force_prefix(prefix_BP, t, log_probs_BWN, allowed_BWN), state_BW

  @staticmethod
  def policy(sentence_arrays, tables, beams):
    _, tokens_BJL = sentence_arrays
    _, continues_N = tables
    if tokens_BJL is None:
      return None
    return allocate_beams(build_matcher(tokens_BJL, continues_N), beams)


def _distinct(phrases: Sequence[str]) -> list[str]:
  """Returns distinct phrases without surrounding white space."""
  return list(
    dict.fromkeys(phrase.strip() for phrase in phrases if not is_blank(phrase))
  )


def encode_phrase(vocabulary: Vocabulary, phrase: str) -> list[int]:
  """Returns the ids of a phrase as if it followed a space, even at the start of a line."""
  ids = vocabulary.encode(phrase)
  if vocabulary.piece(ids[0]).startswith(SPACE):
    return ids
  # Some vocabularies do not add a space at the start of a line.
  return vocabulary.encode(f' {phrase}')


def continue_words(vocabulary: Vocabulary) -> list[bool]:
  """Returns for each piece whether it may continue the preceding word, as a byte may.

  PAD and BOS write nothing, so the word may continue after them.
  """
  continues = []
  for token in range(vocabulary.size):
    if token in (PAD_ID, BOS_ID) or token in BYTE_IDS:
      continues.append(True)
    else:
      first = vocabulary.piece(token)[:1]
      continues.append(token > UNK_ID and is_in_word(first))
  return continues


def _padded(phrases: Sequence[Sequence[int]]) -> np.ndarray:
  """Returns the tokens of a sentence's phrases, padded to powers of two."""
  longest = max(map(len, phrases))
  shape = [1 << (size - 1).bit_length() for size in (len(phrases), longest)]
  tokens_JL = np.full(shape, PAD_ID, np.int32)
  for place, phrase in enumerate(phrases):
    tokens_JL[place, : len(phrase)] = phrase
  return tokens_JL


def lacks_phrase(text: str, phrases: Sequence[str]) -> bool:
  """Returns whether a text lacks one or more of the phrases as whole words."""
  return not all(_holds(text, phrase) for phrase in _distinct(phrases))


def _holds(text: str, phrase: str) -> bool:
  """Returns whether a text contains a phrase as whole words."""
  start = text.find(phrase)
  while start >= 0:
    end = start + len(phrase)
    around = text[max(0, start - 1) : start] + text[end : end + 1]
    if not any(map(is_in_word, around)):
      return True
    start = text.find(phrase, start + 1)
  return False


def warn_about_missing_phrases(
  translations: Sequence[Sequence[str]], required: Sequence[Sequence[str]]
):
  """Logs how many sentences have a translation without a required phrase, if any are required."""
  if not required:
    return
  is_missing = [
    any(lacks_phrase(text, phrases) for text in texts)
    for texts, phrases in zip(translations, required, strict=True)
  ]
  count = sum(is_missing)
  if count:
    logging.warning(
      '%d of %d translations lack words that must appear; they reached the length limit, other '
      'flags forbid the words, or the line is blank',
      count,
      len(translations),
    )
