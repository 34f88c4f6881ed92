"""Paragraphs: neighbouring lines of a document, joined for training or for translation.

  --config.data.variations="(('transformer.tools.documents:paragraphs', 0.5),)"

A document ends at a blank line, and where its text ends.
"""

import dataclasses
import itertools
import re

import numpy as np

from transformer.config import WITHOUT_SPACES
from transformer.data.batch import EOS_ID
from transformer.data.batches.shuffling import mix
from transformer.data.batches.training_batches import take
from transformer.data.batches.variations import Vary, fractions
from transformer.data.config import DataConfig
from transformer.data.encoding import Sentences, differ_in_length
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError

_CHUNK = 1024  # lines whose ends are searched for together, so that the arrays fit into a cache
_OTHER = np.uint64(0xD1B54A32D192ED03)  # Makes draws that other variations do not use.


def paragraphs(
  data: DataConfig, vocabulary: RunVocabulary, share: float, most_lines: float = 0
) -> Vary:
  """Returns the variation that joins a share of the lines with lines that follow them.

  The number of lines is drawn evenly from 2 up to as many as fit into `data.max_length` tokens on
  both sides, and at most `most_lines`, if that is not 0. A line that training drops ends them.
  """
  if not 0 < share <= 1 or most_lines not in (0, *range(2, data.max_length)):
    raise UserError(
      f'transformer.tools.documents:paragraphs takes the share of the lines that '
      f'begin a paragraph, above 0 and at most 1, and the most lines of one, at '
      f'least 2, or 0 for as many as fit; got {share} and {most_lines}'
    )

  def vary(
    source: Sentences, target: Sentences, keys: np.ndarray
  ) -> tuple[Sentences, Sentences]:
    if not (source.in_text and target.in_text):
      raise UserError(
        'transformer.tools.documents:paragraphs must be the first of '
        'data.variations, since it reads the lines that follow in the text'
      )
    keys = mix(keys[0] ^ _OTHER)
    chosen = np.flatnonzero(fractions(keys) < share)
    source_ends = line_ends(source.select(chosen), data.max_length)
    target_ends = line_ends(target.select(chosen), data.max_length)
    fits = _fitting(source_ends, target_ends, data.max_length_ratio)
    fitting = fits[:, : int(most_lines) or None].sum(axis=1)
    longer = fitting > 1
    chosen = chosen[longer]
    choices = (fitting[longer] - 1).astype(np.uint64)
    lines = 2 + (mix(keys[chosen]) % choices).astype(np.int64)
    numbers = np.arange(len(source))
    numbers[chosen] = len(source) + np.arange(len(chosen))

    def joined(
      side: Sentences, ends: np.ndarray, of_side: Vocabulary, language: str
    ) -> Sentences:
      joined = _joined(
        side.select(chosen), ends[longer], lines, of_side, separator(language)
      )
      return take([side, joined], numbers)

    return (
      joined(source, source_ends, vocabulary.source, data.source_language),
      joined(target, target_ends, vocabulary.target, data.target_language),
    )

  return vary


def separator(language: str) -> str:
  """Returns what stands between two sentences of a language, given by its code."""
  return '' if re.split('[-_]', language.lower())[0] in WITHOUT_SPACES else ' '


def line_ends(sentences: Sentences, most: int) -> np.ndarray:
  """Finds the lines of a text that sentences can be joined with, in at most `most` tokens.

  Returns the tokens up to the end of each line, counted from the beginning of the sentence, int32
  [sentences, lines]. The first line is the sentence. 0 is a line that does not fit, or lies beyond
  the end of the document.
  """
  columns = np.arange(
    2 * most
  )  # A line has two tokens or more, and one of them is an end token.
  ends = np.zeros((len(sentences), most), np.int32)
  for first in range(0, len(sentences), _CHUNK):
    places = sentences.starts[first : first + _CHUNK, None] + columns
    # Beyond the text, its last end token comes again, as if a blank line followed.
    places = np.minimum(places, len(sentences.tokens) - 1)
    is_end = sentences.tokens[places] == EOS_ID
    lines = np.cumsum(is_end, axis=1, dtype=np.int32)
    within = is_end & (columns + 2 - lines <= most)
    is_blank = is_end[:, 1:] & is_end[:, :-1]
    within[:, 1:] &= ~np.logical_or.accumulate(is_blank, axis=1)
    row, column = np.nonzero(within)
    ends[first + row, lines[row, column] - 1] = column + 1
  return ends[:, : np.count_nonzero(ends.any(axis=0))]


def _fitting(
  source_ends: np.ndarray, target_ends: np.ndarray, most_ratio: float
) -> np.ndarray:
  """Returns which lines of both sides can be joined: those before the first that cannot."""
  count = min(source_ends.shape[1], target_ends.shape[1])
  source = np.diff(source_ends[:, :count], axis=1, prepend=0)
  target = np.diff(target_ends[:, :count], axis=1, prepend=0)
  fitting = (source > 0) & (target > 0)
  if most_ratio:
    fitting &= ~differ_in_length(source, target, most_ratio)
  return np.logical_and.accumulate(fitting, axis=1)


def _joined(
  sentences: Sentences,
  ends: np.ndarray,
  lines: np.ndarray,
  vocabulary: Vocabulary,
  between: str,
) -> Sentences:
  """Returns sentences, each with some of the lines that follow it."""
  numbers = np.arange(len(lines))
  whole = dataclasses.replace(sentences, lengths=ends[numbers, lines - 1])
  tokens = whole.take(numbers)
  pieces = vocabulary.encode('a')
  if vocabulary.decode([*pieces, *pieces]) == f'a{between}a':
    inner = tokens == EOS_ID
    inner[np.cumsum(whole.lengths) - 1] = False
    lengths = whole.lengths - lines.astype(np.int32) + 1
    return Sentences.end_to_end(tokens[~inner], lengths)
  # The pieces of one line would not say this text behind those of another.
  line_starts = 1 + np.flatnonzero(tokens == EOS_ID)[:-1]
  texts = iter([vocabulary.decode(line) for line in np.split(tokens, line_starts)])
  joined = [between.join(itertools.islice(texts, count)) for count in lines]
  return Sentences.ended(vocabulary.encode_batch(joined))
