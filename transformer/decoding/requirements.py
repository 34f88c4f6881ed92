"""What translations must begin with, what they must contain, and what they must not hold."""

import collections
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from transformer.data.batch import PAD_ID
from transformer.data.text.characters import check_several, is_in_word
from transformer.errors import UserError
from transformer.ops.phrases import Phrases
from transformer.ops.steering import Automaton, Steering


class Requirements(NamedTuple):
  """What translations must begin with, what they must contain, and what they must not hold.

  Attributes:
    prefixes: the beginning of each sentence's translation, blank if it is free; empty if all
      are free.
    automaton: from `avoidance.avoid`; None forbids nothing.
    phrases: the words and sequences of words that each sentence's translation must contain, as
      whole words; empty if there are none. A phrase that is given twice must appear twice.
  """

  prefixes: Sequence[str] = ()
  automaton: Automaton | None = None
  phrases: Sequence[Sequence[str]] = ()


NO_REQUIREMENTS = Requirements()


class Demand(NamedTuple):
  """The requirements of a sentence, which choose the program that translates it.

  Attributes:
    steered: whether the search is steered, by a prefix or by an automaton.
    shape: the padded numbers of phrases and of tokens of each; None if there is no phrase.
  """

  steered: bool
  shape: tuple[int, int] | None


class EncodedRequirements(NamedTuple):
  """Requirements as tokens.

  Attributes:
    prefixes: the tokens of each sentence's prefix.
    phrases: the tokens of each sentence's phrases.
    automaton: as in `Requirements`.
    continues_N: which tokens continue a word; None if there are no phrases.
  """

  prefixes: Sequence[Sequence[int]]
  phrases: Sequence[Sequence[Sequence[int]]]
  automaton: Automaton | None
  continues_N: np.ndarray | None

  def demand(self, sentence: int) -> Demand:
    """Returns the demand of a sentence; phrases are padded to powers of two."""
    steered, phrases = bool(self.automaton or self.prefixes[sentence]), self.phrases[sentence]
    shape = phrases and (_power_of_two(len(phrases)), _power_of_two(max(map(len, phrases))))
    return Demand(steered, shape or None)

  def arrays(self, demand: Demand, sentences: Sequence[int], rows: int, room: int) -> tuple[
      Steering | None, Phrases | None]:
    """Returns what the search for a batch needs, as NumPy arrays.

    Args:
      demand: the demand that all its sentences have.
      sentences: the indices of its sentences.
      rows: B, the number of rows; those after the sentences ask for nothing.
      room: P, the padded number of tokens of prefixes.
    """
    tokens_BJL = np.full((rows, *(demand.shape or (0, 0))), PAD_ID, np.int32)
    for row, sentence in enumerate(sentences):
      for place, phrase in enumerate(self.phrases[sentence]):
        tokens_BJL[row, place, :len(phrase)] = phrase
    prefix_BP = self.prefix_array(sentences, rows, room)
    return (Steering(prefix_BP, self.automaton) if demand.steered else None,
            Phrases(tokens_BJL, self.continues_N) if demand.shape else None)

  def prefix_array(self, sentences: Sequence[int], rows: int, room: int) -> np.ndarray:
    """Returns the prefixes of a batch, int32 [B, P]; the arguments are those of `arrays`."""
    prefix_BP = np.full((rows, room), PAD_ID, np.int32)
    for row, sentence in enumerate(sentences):
      prefix_BP[row, :len(self.prefixes[sentence])] = self.prefixes[sentence]
    return prefix_BP


def encode_requirements(requirements: Requirements, vocabulary, limits: Sequence[int],
                        first: int = 0) -> EncodedRequirements:
  """Encodes requirements, and checks that each sentence's translation has room for them.

  Args:
    requirements: the requirements of the sentences.
    vocabulary: the `Vocabulary` of the target language.
    limits: the most tokens of each sentence's translation, the end token included.
    first: the number of sentences before these, for errors.

  Raises:
    UserError: a prefix, or the phrases of a sentence together, leave no room within the limit; or
      one string is given in place of several.
  """
  for lines in (requirements.prefixes, requirements.phrases, *requirements.phrases):
    check_several(lines)
  nothing = [[]] * len(limits)
  prefixes = vocabulary.encode_batch([each.strip() for each in requirements.prefixes]) or nothing
  phrases = [[vocabulary.encode_phrase(phrase.strip()) for phrase in each if phrase.strip()]
             for each in requirements.phrases] or nothing
  for number, (prefix, each, limit) in enumerate(zip(prefixes, phrases, limits, strict=True),
                                                   first + 1):
    for what, tokens in (('the beginning of', len(prefix)),
                         ('the phrases that must appear in', sum(map(len, each)))):
      if tokens >= limit:
        raise UserError(f'{what} translation {number} must have fewer tokens than its limit, '
                        f'{limit}; got {tokens}; shorten it, or raise decode.max_extra_length')
  return EncodedRequirements(prefixes, phrases, requirements.automaton,
                             np.asarray(vocabulary.continue_words()) if any(phrases) else None)


def lacks_phrase(text: str, phrases: Sequence[str]) -> bool:
  """Returns whether a text lacks one of some phrases as whole words, or has it too seldom."""
  counts = collections.Counter(phrase.strip() for phrase in phrases if phrase.strip())
  return any(_count(text, phrase) < count for phrase, count in counts.items())


def _count(text: str, phrase: str) -> int:
  """Returns how often a phrase stands in a text as whole words, without overlap."""
  count = end = 0
  while (start := text.find(phrase, end)) >= 0:
    after = start + len(phrase)
    whole = not any(map(is_in_word, text[max(0, start - 1):start] + text[after:after + 1]))
    count += whole
    end = after if whole else start + 1
  return count


def warn_of_lacking(translations: Sequence[Sequence[str]], phrases: Sequence[Sequence[str]]):
  """Warns how many sentences have a translation that lacks a phrase, if any.

  Args:
    translations: the translations of each sentence.
    phrases: what each of them must contain; or nothing.
  """
  count = sum(any(lacks_phrase(text, each) for text in texts)
              for texts, each in zip(translations, phrases, strict=True)) if phrases else 0
  if count:
    logging.warning('%d of %d translations lack words that must appear; they ended at the limit of '
                    'length, other flags forbid the words, or the line is blank', count,
                    len(translations))


def _power_of_two(number: int) -> int:
  return 1 << (number - 1).bit_length()
