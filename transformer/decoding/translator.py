"""The translator: sentences in, translations out, in the same order."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from transformer.data.batch import EOS_ID
from transformer.data.text.text_files import is_blank
from transformer.decoding.config import DecodeConfig
from transformer.decoding.constraint import FREE, Constraint, stacked
from transformer.decoding.continuous_batching import SearchBatch, search_batches
from transformer.decoding.model_search import ModelSearch, random_keys
from transformer.decoding.pairs import padded, padded_length
from transformer.decoding.search_programs import SearchPrograms
from transformer.errors import UserError
from transformer.model.building import Model
from transformer.ops.search import Hypotheses
from transformer.system.machine import usable_cores
from transformer.training.mesh import gathering, replicated, sentence_mesh, sentence_sharding

_MOST_EXTENSIONS = 2**31 - 1  # A search indexes beams × vocabulary by int32.
# Batches that a CPU computes side by side: each takes memory, and uses several cores for its
# larger matrix products.
_MOST_BATCHES = 4


class Translation(NamedTuple):
  """The translation of a sentence.

  Attributes:
    text: one line; empty for a blank source.
    score: log-probability divided by the length penalty, natural logarithm; not
      finite if the model's log-probabilities are not.
    cut: whether the source was longer than the run's `max_length` and lost its end.
    nbest: pairs of a translation and its score, best first. A search gives no text twice; draws
      are all there.
  """

  text: str
  score: float
  cut: bool
  nbest: tuple[tuple[str, float], ...]


def distinct(nbest: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
  """Returns the texts of a list, best first, without those that occurred before in other pieces."""
  scores: dict[str, float] = {}
  for text, score in nbest:
    scores.setdefault(text, score)
  return tuple(scores.items())


@dataclasses.dataclass(eq=False)
class Translator:
  """Translates text with a model and a search, whose programs are compiled once for each shape.

  Sources are padded to a power of two, and batches to `decode.batch_size` sentences. So the shapes
  of a sentence's arrays depend only on the sentence, the config and the number of devices that
  share a batch. A sample also depends on the seed and the sentence's number, so that equal
  sentences get different samples.

  Attributes:
    model: the Transformer; or several, whose probabilities of the next token are averaged. Then
      their parameters are a sequence, too.
    vocabulary: its `source` encodes text, and its `target` decodes it.
    config: how to search or sample.
    max_length: the most tokens of a source, end token included; longer sources are cut.
    nbest: the number of translations for each sentence, at most `beam_size`.
    mesh: the devices that share each batch; None is one device of this process.

  Raises:
    UserError: `beam_size` times the vocabulary's size exceeds int32.
  """

  model: Model | Sequence[Model]
  vocabulary: Any
  config: DecodeConfig
  max_length: int
  nbest: int = 1
  mesh: Mesh | None = None

  def __post_init__(self):
    config = self.config
    pieces = self.vocabulary.target.size
    if config.beam_size > (most := _MOST_EXTENSIONS // pieces):
      raise UserError(
        f'{config.prefix}beam_size must be at most {most} with a vocabulary of '
        f'{pieces} pieces; got {config.beam_size}'
      )
    mesh = self.mesh or sentence_mesh(1)
    rows = sentence_sharding(mesh, config.batch_size)
    models = self._by_model(self.model)
    self._everywhere = replicated(mesh)
    self.programs = functools.cache(
      lambda constraint: SearchPrograms(
        ModelSearch(models, config, self.nbest, constraint), self.max_length, rows
      )
    )
    # Elsewhere, moving sentences to another batch would take longer than to finish theirs.
    refills = mesh.size == 1 and mesh.devices.item().platform == 'cpu'
    self._threads = min(usable_cores(), _MOST_BATCHES) if refills else 0

  def __call__(
    self,
    params,
    sentences: Sequence[str],
    first: int = 0,
    constraint: Constraint = FREE,
    progress: Callable[[int], Any] = lambda count: None,
    seed: int = 0,
  ) -> list[Translation]:
    """Translates sentences, and returns the translations in the same order.

    Args:
      params: the model's parameters; for several models, a sequence of their parameters.
      sentences: one line of text each; one without visible characters has an empty translation.
      first: the number of sentences translated before these; samples depend on it.
      constraint: what the translations must obey.
      progress: called with numbers of sentences that are done, in any thread.
      seed: the root of the random keys for samples, at least 0 and below 2³².

    Raises:
      UserError: no translation of a sentence can obey, or there is one string in place of several.
    """
    encoded = self.vocabulary.source.encode_batch(sentences)
    extra = self.config.max_extra_length
    limits = [min(len(ids) + 1, self.max_length) + extra for ids in encoded]
    rows = constraint.rows(self.vocabulary.target, limits, self.max_length + extra, first)
    params = jax.device_put(*self._placed(params))
    tables = jax.device_put(constraint.tables, self._everywhere)
    call = _Call(
      self,
      params,
      type(constraint),
      tables,
      encoded,
      limits,
      rows,
      first,
      seed,
      [Translation('', 0.0, False, (('', 0.0),))] * len(sentences),
      progress,
    )
    chosen = [index for index, sentence in enumerate(sentences) if not is_blank(sentence)]
    progress(len(sentences) - len(chosen))
    search_batches(call.batches(chosen), call, self.config.batch_size, self._threads)
    return call.answers

  def compile_longest(self, params, sentences: Sequence[str]) -> tuple[int, Any]:
    """Compiles ahead of time what needs most memory for the longest of some sentences.

    Returns:
      The padded length of that sentence, and the program for such parameters, or their shapes.
    """
    longest = max(map(len, self.vocabulary.source.encode_batch(sentences)))
    length = padded_length(longest + 1, self.max_length)
    like = jax.tree.map(
      lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
      *self._placed(params),
    )
    given = np.zeros(self.config.batch_size, np.int32), random_keys(self.config, 0, []), None
    return length, self.programs(Constraint).compile_largest(like, length, given)

  def _by_model(self, one_or_several) -> list:
    return [one_or_several] if isinstance(self.model, Model) else [*one_or_several]

  def _placed(self, params) -> tuple[list, Any]:
    """Returns the parameters of each model, and their shardings for a search."""
    params = self._by_model(params)
    models = self._by_model(self.model)
    return params, [
      gathering(self._everywhere.mesh, own, model)
      for own, model in zip(params, models, strict=True)
    ]


class _Bucket(NamedTuple):
  """What sentences have in common whose arrays have the same shapes, so that they share batches."""

  programs: SearchPrograms
  length: int  # of an encoded source
  form: Any  # the structure and the shapes of the constraint's arrays; None is a free sentence


@dataclasses.dataclass(frozen=True)
class _Call:
  """The sentences of one call of a translator; its methods are those of `Sentences`.

  Attributes:
    encoded: the ids of each source, without an end token.
    limits: the largest number of tokens of each translation.
    rows: the constraint's arrays of each sentence.
    answers: filled with the translations.
    progress: as for `Translator.__call__`.
  """

  translator: Translator
  params: Any
  constraint: type[Constraint]
  tables: Any
  encoded: Sequence[Sequence[int]]
  limits: Sequence[int]
  rows: Sequence[Any]
  first: int
  seed: int
  answers: list[Translation]
  progress: Callable[[int], Any]

  def batches(self, chosen: Sequence[int]) -> list[SearchBatch]:
    """Returns batches of sentences of similar length, the shortest first.

    A program for arrays of other shapes may round in another way. So only sentences with arrays
    of the same shapes share a batch, and their translations do not depend on the others.
    """
    buckets: dict[tuple, list[int]] = {}
    for index in sorted(chosen, key=lambda index: len(self.encoded[index])):
      buckets.setdefault((self._padded_length(index), self._bucket(index)), []).append(index)
    size = self.translator.config.batch_size
    return [
      SearchBatch(bucket, 0, dict(enumerate(indices[start : start + size])))
      for (_, bucket), indices in buckets.items()
      for start in range(0, len(indices), size)
    ]

  def begin(self, batch: SearchBatch) -> Any:
    """Encodes the sources of a batch."""
    translator = self.translator
    size = translator.config.batch_size
    indices = [*batch.rows.values()]
    ids = [[*self.encoded[index][: translator.max_length - 1], EOS_ID] for index in indices]
    given = (
      stacked([np.int32(self.limits[index]) for index in indices], size),
      random_keys(translator.config, self.seed, np.add(indices, self.first)),
      stacked([self.rows[index] for index in indices], size),
    )
    return batch.bucket.programs.begin(
      self.params,
      self._tables(batch.bucket),
      padded(ids, self._padded_length(indices[0]), size),
      given,
    )

  def advance(self, batch: SearchBatch, pauses: bool) -> tuple[Any, int, Any, Hypotheses]:
    """Adds some tokens, as `SearchPrograms.advance` does."""
    return batch.bucket.programs.advance(
      self.params, self._tables(batch.bucket), batch.state, batch.t, pauses
    )

  def finish(self, hypotheses: Hypotheses, row: int, index: int):
    """Keeps the translation of a sentence."""
    translator = self.translator
    scores = hypotheses.scores[row]
    nbest = tuple(
      (translator.vocabulary.target.decode(hypotheses.tokens[row, place]), float(scores[place]))
      for place in range(translator.nbest)
      if hypotheses.lengths[row, place]
    )
    if not translator.config.sample:
      nbest = distinct(nbest)
    # If the log-probabilities are NaN, there may be no best hypothesis.
    text, score = nbest[0] if nbest else ('', float(scores[0]))
    is_cut = len(self.encoded[index]) + 1 > translator.max_length
    self.answers[index] = Translation(text, score, is_cut, nbest)
    self.progress(1)

  def _padded_length(self, index: int) -> int:
    return padded_length(len(self.encoded[index]) + 1, self.translator.max_length)

  def _bucket(self, index: int) -> _Bucket:
    row = self.rows[index]
    free = row is None
    programs = self.translator.programs(Constraint if free else self.constraint)
    length = programs.decoded_length(self._padded_length(index))
    if free:
      return _Bucket(programs, length, None)
    leaves, tree = jax.tree.flatten(row)
    return _Bucket(programs, length, (tree, *map(np.shape, leaves)))

  def _tables(self, bucket: _Bucket) -> Any:
    return () if bucket.form is None else self.tables
