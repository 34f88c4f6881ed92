"""The translator: sentences in, translations out, in the same order."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import logging
from jax.sharding import NamedSharding, PartitionSpec

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.data.text.text_files import is_blank
from transformer.decoding.batch_search import BatchSearch
from transformer.decoding.config import DecodeConfig
from transformer.decoding.constraint import FREE, Constraint, stacked
from transformer.decoding.pooled_search import Batch, Work, search_pooled
from transformer.decoding.search_parts import SearchParts
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.ops.search import Hypotheses
from transformer.training.mesh import gathered

_SHORTEST_BUCKET = 16
_MOST_EXTENSIONS = 2**31 - 1  # A search indexes beams × vocabulary by int32.


class Translation(NamedTuple):
  """The translation of a sentence.

  Attributes:
    text: the translation, one line; empty for a blank source.
    score: log-probability divided by the length penalty, natural logarithm; not
      finite if the model's log-probabilities are not.
    cut: whether the source was longer than the run's `max_length` and lost its end.
    nbest: pairs of a translation and its score, best first; at most the number that
      was asked for.
  """

  text: str
  score: float
  cut: bool
  nbest: tuple[tuple[str, float], ...]


def padded_length(length: int, most: int) -> int:
  """Returns the padded length: a power of two, or `most`.

  With few padded lengths, few programs are compiled.

  Args:
    length: the number of tokens, the end token included.
    most: the largest padded length; longer sequences are cut.
  """
  return min(max(_SHORTEST_BUCKET, 1 << (length - 1).bit_length()), most)


def warn_of_cut(cut: Sequence[bool], max_length: int):
  """Warns how many sources were cut, if any; `cut` has a flag for each source."""
  if any(cut):
    logging.warning('%d of %d sources were longer than data.max_length=%d tokens and were cut',
                    sum(cut), len(cut), max_length)


class Translator:
  """Translates text with a model and a search, compiled once for each padded length.

  Sources are padded to a power of two, and batches to `decode.batch_size` sentences.
  So the shapes of a sentence's arrays depend only on the sentence, the config and the
  number of devices that share a batch. A sample also depends on the sentence's number,
  so that equal sentences get different samples.
  """

  def __init__(self, model: Transformer | Sequence[Transformer], vocabulary, config: DecodeConfig,
               max_length: int, seed: int = 0,
               devices: NamedSharding | int | None = None, nbest: int = 1):
    """Builds the search; it is compiled when a length first occurs.

    Args:
      model: the Transformer, or several, as `BatchSearch` takes them.
      vocabulary: its `source` encodes text, and its `target` decodes it.
      config: how to search or sample.
      max_length: the most tokens of a source, end token included; longer sources
        are cut.
      seed: the root of the random keys for samples, at least 0 and below 2³².
      devices: a sharding splits the sentences of each batch over several devices. A number is
        how many batches one device computes side by side; then a `Pool` fills up the batches, and
        `keep_traced` keeps the programs. None is one batch after the other.
      nbest: the number of translations for each sentence, at most `beam_size`.

    Raises:
      UserError: `nbest` is not between 1 and `beam_size`, or `beam_size` times the
        vocabulary's size exceeds int32.
    """
    most = _MOST_EXTENSIONS // vocabulary.target.size
    if config.beam_size > most:
      raise UserError(f'decode.beam_size must be at most {most} with a vocabulary of '
                      f'{vocabulary.target.size} pieces; got {config.beam_size}')
    if not 1 <= nbest <= config.beam_size:
      raise UserError(f'an n-best list must have at least 1 and at most decode.beam_size='
                      f'{config.beam_size} translations; got {nbest}')
    self._model = model
    self._nbest = nbest
    self._vocabulary = vocabulary
    self._config = config
    self._max_length = max_length
    self._rows = devices if isinstance(devices, NamedSharding) else None
    self._threads = devices if isinstance(devices, int) else 0
    self._searches: dict[type[Constraint], Callable] = {}
    self._compiled: dict[int, Callable] = {}
    self._root = jax.random.key(seed, impl='threefry2x32') if config.sample else None

  def __call__(self, params, sentences: Sequence[str], first: int = 0,
               constraint: Constraint = FREE,
               progress: Callable[[int], Any] = lambda count: None) -> list[Translation]:
    """Translates sentences, and returns the translations in the same order.

    Args:
      params: the model's parameters; for several models, a sequence of their parameters.
      sentences: one line of text each; one without visible characters has an empty translation.
      first: the number of sentences translated before these; samples depend on it.
      constraint: what the translations must obey.
      progress: called with numbers of sentences that are done, in any thread.

    Raises:
      UserError: no translation of a sentence can obey, or there is one string in place of several.
    """
    encoded = self._vocabulary.source.encode_batch(sentences)
    limits = [min(len(ids) + 1, self._max_length) + self._config.max_extra_length
              for ids in encoded]
    rows = constraint.rows(self._vocabulary.target, limits,
                           self._max_length + self._config.max_extra_length, first)
    answers = [Translation('', 0.0, False, (('', 0.0),))] * len(sentences)
    asked = [i for i, sentence in enumerate(sentences) if not is_blank(sentence)]
    batches = list(self._batches(asked, encoded, rows))
    size = self._config.batch_size
    progress(len(sentences) - len(asked))

    def arrays_of(batch):
      source_BS = np.full((size, batch.length), PAD_ID, np.int32)
      limits_B = np.zeros(size, np.int32)
      for row, index in enumerate(batch.chosen):
        ids = [*encoded[index][:self._max_length - 1], EOS_ID]
        source_BS[row, :len(ids)], limits_B[row] = ids, limits[index]
      return source_BS, (limits_B, self._keys(batch.chosen, first),
                         stacked([rows[index] for index in batch.chosen], size))

    def write(best, row, index):
      nbest = self._nbest_of(best, row)
      # If the log-probabilities are NaN, there may be no best hypothesis.
      text, score = nbest[0] if nbest else ('', float(best.scores[row, 0]))
      answers[index] = Translation(text, score, len(encoded[index]) >= self._max_length, nbest)
      progress(1)

    searches = self._search(Constraint), self._search(type(constraint))
    if self._threads:
      search_pooled(params, Work(batches, arrays_of, searches, constraint.tables, write), size,
                    self._threads)
      return answers
    for batch in batches:
      free = batch.form is None
      search = (free and self._compiled.get(batch.length)) or searches[not free]
      source_BS, given = arrays_of(batch)
      best = jax.device_get(search(params, *self._placed((source_BS, *given)),
                                   () if free else constraint.tables))
      for row, index in enumerate(batch.chosen):
        write(best, row, index)
    return answers

  def _search(self, constraint: type[Constraint]) -> SearchParts | Callable[..., Hypotheses]:
    """Returns the search for sentences with a constraint: in parts, or whole."""
    if constraint not in self._searches:
      search = BatchSearch(self._model, self._config, self._nbest, constraint)
      if self._threads:
        about = repr((self._model, self._config, self._nbest, PAD_ID, BOS_ID, EOS_ID))
        self._searches[constraint] = SearchParts(search, about, self._max_length)
      elif self._rows is None:
        self._searches[constraint] = jax.jit(search)
      else:
        mesh, everywhere = self._rows.mesh, NamedSharding(self._rows.mesh, PartitionSpec())
        # The parameters of a run in training may be split.
        self._searches[constraint] = jax.jit(
            lambda params, *given: search(gathered(mesh, params), *given),
            in_shardings=(None, *[self._rows] * 4, everywhere), out_shardings=everywhere)
    return self._searches[constraint]

  def _nbest_of(self, best: Hypotheses, row: int) -> tuple[tuple[str, float], ...]:
    """Returns the texts and the scores in a row of a search's result."""
    decode = self._vocabulary.target.decode
    return tuple((decode(best.tokens[row, place]), float(best.scores[row, place]))
                 for place in range(self._nbest) if best.lengths[row, place])

  def compile_longest(self, params, sentences: Sequence[str]):
    """Compiles the search for the longest sentence ahead of time.

    Args:
      params: parameters, or their shapes and shardings; the program takes no others.
      sentences: text.

    Returns:
      The padded length of the longest sentence, and the compiled program.
    """
    longest = max(map(len, self._vocabulary.source.encode_batch(sentences)))
    length, size = padded_length(longest + 1, self._max_length), self._config.batch_size
    arrays = np.full((size, length), PAD_ID, np.int32), np.zeros(size, np.int32), None, None
    program = self._search(Constraint).lower(params, *self._placed(arrays), ()).compile()
    self._compiled[length] = program
    return length, program

  def _placed(self, arrays):
    """Puts arrays onto the devices of the search; every process has the whole arrays."""
    if self._rows is None or jax.process_count() == 1:
      return arrays
    return jax.tree.map(lambda array: jax.make_array_from_callback(
        array.shape, self._rows, lambda index: array[index]), arrays)

  def _keys(self, chosen, first=0):
    """Returns the data of a random key for each row of a batch, from the sentence's number."""
    if self._root is None:
      return None
    numbers = np.zeros(self._config.batch_size, np.uint32)
    numbers[:len(chosen)] = np.add(chosen, first)
    keys_B = jax.vmap(jax.random.fold_in, (None, 0))(self._root, numbers)
    return np.asarray(jax.random.key_data(keys_B))

  def _batches(self, asked, encoded, rows) -> Iterator[Batch]:
    """Yields batches of sentences of similar length, the shortest first.

    A program for arrays of other shapes may round in another way. So only sentences with arrays
    of the same shapes share a batch, and their translations do not depend on the others.
    """
    buckets: dict[tuple[int, Any], list[int]] = {}
    for index in sorted(asked, key=lambda i: len(encoded[i])):
      length = padded_length(len(encoded[index]) + 1, self._max_length)
      leaves, tree = jax.tree.flatten(rows[index])
      form = None if rows[index] is None else (tree, *map(np.shape, leaves))
      buckets.setdefault((length, form), []).append(index)
    size = self._config.batch_size
    for (length, form), members in buckets.items():
      for first in range(0, len(members), size):
        yield Batch(length, form, members[first:first + size])
