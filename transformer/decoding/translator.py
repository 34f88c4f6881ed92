"""The translator: sentences in, translations out, in the same order."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import logging
from jax.sharding import NamedSharding

from transformer.data.batch import EOS_ID, PAD_ID
from transformer.data.text.text_files import is_blank
from transformer.decoding.config import DecodeConfig
from transformer.decoding.constraint import FREE, Constraint, stacked
from transformer.decoding.model_search import ModelSearch
from transformer.decoding.pool import Kind, Part, search_parts
from transformer.decoding.search_programs import SearchPrograms, State
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.ops.search import Hypotheses
from transformer.training.mesh import gathering, replicated, sentence_mesh

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
  """Returns the padded length for a number of tokens: a power of two, or `most`.

  With few padded lengths, few programs are compiled.
  """
  return min(max(_SHORTEST_BUCKET, 1 << (length - 1).bit_length()), most)


def warn_of_cut(cut: Sequence[bool], max_length: int):
  """Warns how many sources were cut, if any; `cut` has a flag for each source."""
  if any(cut):
    logging.warning('%d of %d sources were longer than data.max_length=%d tokens and were cut',
                    sum(cut), len(cut), max_length)


class Translator:
  """Translates text with a model and a search, whose programs are compiled once for each shape.

  Sources are padded to a power of two, and batches to `decode.batch_size` sentences. So the shapes
  of a sentence's arrays depend only on the sentence, the config and the number of devices that
  share a batch. A sample also depends on the sentence's number, so that equal sentences get
  different samples.
  """

  def __init__(self, model: Transformer | Sequence[Transformer], vocabulary, config: DecodeConfig,
               max_length: int, seed: int = 0, *, rows: NamedSharding | None = None,
               threads: int = 1, nbest: int = 1):
    """Plans the search.

    Args:
      model: the Transformer; or several, whose probabilities of the next token are averaged. Then
        their parameters are a sequence, too.
      vocabulary: its `source` encodes text, and its `target` decodes it.
      config: how to search or sample.
      max_length: the most tokens of a source, end token included; longer sources are cut.
      seed: the root of the random keys for samples, at least 0 and below 2³².
      rows: splits the sentences of each batch over devices. None is one device of this process.
      threads: the number of batches that a CPU computes side by side.
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
    self._is_one = isinstance(model, Transformer)
    self._search = ModelSearch([model] if self._is_one else [*model], config, nbest)
    self._vocabulary, self._config, self._max_length = vocabulary, config, max_length
    self._rows = rows or replicated(sentence_mesh(1))
    # Elsewhere, moving sentences to another batch would take longer than to finish theirs.
    mesh = self._rows.mesh
    self._threads = threads if mesh.size == 1 and mesh.devices.item().platform == 'cpu' else 0
    self._by_constraint: dict[type[Constraint], SearchPrograms] = {}
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
    extra, size, mesh = self._config.max_extra_length, self._config.batch_size, self._rows.mesh
    limits = [min(len(ids) + 1, self._max_length) + extra for ids in encoded]
    rows = constraint.rows(self._vocabulary.target, limits, self._max_length + extra, first)
    params = self._placed(params)
    tables = jax.device_put(constraint.tables, replicated(mesh))
    given = {self._programs(type(constraint)): (params, tables), self._programs(): (params, ())}
    answers = [Translation('', 0.0, False, (('', 0.0),))] * len(sentences)

    def begin(part: Part) -> State:
      length = padded_length(len(encoded[part.chosen[0]]) + 1, self._max_length)
      source_BS, limits_B = np.full((size, length), PAD_ID, np.int32), np.zeros(size, np.int32)
      for row, index in enumerate(part.chosen):
        ids = [*encoded[index][:self._max_length - 1], EOS_ID]
        source_BS[row, :len(ids)], limits_B[row] = ids, limits[index]
      keys = self._keys(np.add(part.chosen, first))
      programs = part.kind.programs
      return programs.begin(*given[programs], source_BS, (
          limits_B, keys, stacked([rows[index] for index in part.chosen], size)))

    def write(best: Hypotheses, row: int, index: int):
      nbest = tuple((self._vocabulary.target.decode(best.tokens[row, place]),
                     float(best.scores[row, place]))
                    for place in range(self._search.nbest) if best.lengths[row, place])
      # If the log-probabilities are NaN, there may be no best hypothesis.
      text, score = nbest[0] if nbest else ('', float(best.scores[row, 0]))
      answers[index] = Translation(text, score, len(encoded[index]) >= self._max_length, nbest)
      progress(1)

    chosen = [index for index, sentence in enumerate(sentences) if not is_blank(sentence)]
    progress(len(sentences) - len(chosen))
    search_parts(self._parts(chosen, encoded, rows, constraint), begin, given, write, size,
                 self._threads)
    return answers

  def _parts(self, chosen, encoded, rows, constraint: Constraint) -> list[Part]:
    """Returns batches of sentences of similar length, the shortest first.

    A program for arrays of other shapes may round in another way. So only sentences with arrays
    of the same shapes share a batch, and their translations do not depend on the others.
    """
    buckets: dict[tuple[int, Kind], list[int]] = {}
    for index in sorted(chosen, key=lambda index: len(encoded[index])):
      length = padded_length(len(encoded[index]) + 1, self._max_length)
      programs, form = self._programs(), None
      if rows[index] is not None:
        leaves, tree = jax.tree.flatten(rows[index])
        programs, form = self._programs(type(constraint)), (tree, *map(np.shape, leaves))
      kind = Kind(programs, programs.decoded_length(length), form)
      buckets.setdefault((length, kind), []).append(index)
    size = self._config.batch_size
    return [Part(kind, 0, members[start:start + size]) for (_, kind), members in buckets.items()
            for start in range(0, len(members), size)]

  def compile_longest(self, params, sentences: Sequence[str]) -> tuple[int, Any]:
    """Compiles what needs most memory for the longest of some sentences ahead of time.

    Args:
      params: parameters, or their shapes and shardings.
      sentences: text.

    Returns:
      The padded length of the longest sentence, and the compiled program.
    """
    longest = max(map(len, self._vocabulary.source.encode_batch(sentences)))
    length, size = padded_length(longest + 1, self._max_length), self._config.batch_size
    params = [params] if self._is_one else [*params]
    like = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        params, gathering(self._rows.mesh, params))
    given = np.zeros(size, np.int32), self._keys([]), None
    return length, self._programs().compile_largest(like, length, given)

  def _placed(self, params) -> list:
    """Returns the parameters of each model, on the devices of the search."""
    params = [params] if self._is_one else [*params]
    return jax.device_put(params, gathering(self._rows.mesh, params))

  def _programs(self, constraint: type[Constraint] = Constraint) -> SearchPrograms:
    if constraint not in self._by_constraint:
      search = dataclasses.replace(self._search, constraint=constraint)
      self._by_constraint[constraint] = SearchPrograms(search, self._max_length, self._rows)
    return self._by_constraint[constraint]

  def _keys(self, numbers: Sequence[int]):
    """Returns the data of a random key for each row of a batch, from the sentence's number."""
    if self._root is None:
      return None
    padded = np.zeros(self._config.batch_size, np.uint32)
    padded[:len(numbers)] = numbers
    return np.asarray(jax.random.key_data(jax.vmap(jax.random.fold_in, (None, 0))(self._root,
                                                                                  padded)))
