"""The translator: sentences in, translations out, in the same order."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
from jax.sharding import Mesh

from transformer.data.text.text_files import is_blank
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.decoding.batching import truncated
from transformer.decoding.config import DecodeOptions
from transformer.decoding.constraint import UNCONSTRAINED, Constraint
from transformer.decoding.continuous_batching import search_batches
from transformer.decoding.decoder_search import DecoderSearch
from transformer.decoding.search_programs import SearchPrograms
from transformer.decoding.sentence_search import (
  Sentence,
  SentenceSearch,
  batch_sentences,
  search_inputs,
)
from transformer.model.building import Model
from transformer.system.machine import usable_cores
from transformer.system.progress import progress_bar
from transformer.training.mesh import (
  gathered_shardings,
  replicated,
  sentence_mesh,
  sentence_sharding,
)

# Maximum number of batches that a CPU computes concurrently: each takes memory, and uses several
# cores for its larger matrix products.
_MAX_BATCHES = 4


class Translation(NamedTuple):
  """The translation of a sentence.

  Attributes:
    text: one line; empty for a blank source.
    score: log-probability divided by the length penalty, natural logarithm; not
      finite if the model's log-probabilities are not.
    truncated: whether the source was longer than the run's `max_length`, and was truncated.
    nbest: pairs (text, score), best first. The texts of a search are distinct; samples may be
      equal.
  """

  text: str
  score: float
  truncated: bool
  nbest: tuple[tuple[str, float], ...]


@dataclasses.dataclass(frozen=True)
class Translator:
  """Translates text with models; the programs of a search are compiled once per shape.

  Sources are padded to a power of two, and batches to `batch_size` sentences. So the shapes of a
  sentence's arrays depend only on the sentence, the options and the number of devices that share a
  batch. A sample also depends on the seed and the sentence's number, so equal sentences get
  different samples.

  Attributes:
    models: the models, whose next-token probabilities are averaged.
    vocabulary: its `source` encodes sources, and its `target` decodes translations.
    max_length: maximum tokens of a source, EOS included; longer sources are truncated.
    mesh: the devices that share each batch; by default one device of this process.
  """

  models: tuple[Model, ...]
  vocabulary: RunVocabulary
  max_length: int
  mesh: Mesh = dataclasses.field(default_factory=functools.partial(sentence_mesh, 1))

  def __call__(
    self,
    params: Sequence,
    sentences: Sequence[str],
    decoding: DecodeOptions,
    *,
    offset: int = 0,
    constraint: Constraint = UNCONSTRAINED,
    description: str = 'translating: ',
  ) -> list[Translation]:
    """Returns the translations of sentences, in the same order.

    Args:
      params: the parameters of each model.
      sentences: one line of text each; a blank line has an empty translation.
      decoding: how to search or sample.
      offset: number of sentences translated before these; samples depend on it.
      constraint: the constraint on the translations.
      description: label of the progress bar at a terminal.

    Raises:
      UserError: no translation of a sentence can satisfy the constraint, or `sentences` is one
        string.
    """
    encoded = self.vocabulary.source.encode_batch(sentences)
    sources = [truncated(ids, self.max_length) for ids in encoded]
    extra = decoding.max_extra_length
    limits = [len(source) + extra for source in sources]
    all_arrays = constraint.sentence_arrays(
      self.vocabulary.target, limits, self.max_length + extra, offset
    )
    parts = zip(sentences, sources, limits, all_arrays, strict=True)
    nonblank = []
    for index, (line, source, limit, arrays) in enumerate(parts, offset):
      if not is_blank(line):
        nonblank.append(Sentence(index, source, limit, arrays))
    engine = SentenceSearch(
      self._programs(decoding, type(constraint)),
      jax.device_put(list(params), self._shardings(params)),
      jax.device_put(constraint.tables, replicated(self.mesh)),
      decoding,
      self.vocabulary.target,
    )
    # On other devices, moving sentences to another batch takes longer than finishing their batch.
    refills = self.mesh.size == 1 and self.mesh.devices.item().platform == 'cpu'
    threads = min(usable_cores(), _MAX_BATCHES) if refills else 1
    size = decoding.batch_size
    batches = batch_sentences(nonblank, size, self.max_length)
    nbest_lists = {}
    with progress_bar(len(nonblank), description=description) as bar:
      for results in search_batches(batches, engine.search, size, threads, refills):
        nbest_lists |= results
        if results:  # Does not redraw an unchanged bar.
          bar.update(len(results))
    translations = []
    for index, ids in enumerate(encoded, offset):
      nbest = tuple(nbest_lists.get(index, [('', 0.0)]))
      translations.append(Translation(*nbest[0], len(ids) >= self.max_length, nbest))
    return translations

  def compile_longest(
    self, params: Sequence, sentences: Sequence[str], decoding: DecodeOptions
  ) -> tuple:
    """Compiles the program that needs the most memory, the one for the longest sentence.

    Returns:
      The padded length of this sentence, and the program. `params` may be arrays or their shapes.
    """
    longest = max(self.vocabulary.source.encode_batch(sentences), key=len)
    source = truncated(longest, self.max_length)
    inputs = search_inputs([Sentence(0, source, 0)], decoding, self.max_length)
    abstract_params = jax.tree.map(
      lambda leaf, sharding: jax.ShapeDtypeStruct(
        leaf.shape, leaf.dtype, sharding=sharding
      ),
      list(params),
      self._shardings(params),
    )
    programs = self._programs(decoding, Constraint)
    return inputs.sources.shape[1], programs.compile_largest(abstract_params, inputs)

  def _shardings(self, params: Sequence) -> list:
    """Returns the shardings of each model's parameters for a search."""
    pairs = zip(params, self.models, strict=True)
    return [
      gathered_shardings(self.mesh, model_params, model)
      for model_params, model in pairs
    ]

  def _programs(
    self, decoding: DecodeOptions, constraint: type[Constraint]
  ) -> SearchPrograms:
    """Returns the programs of a search; they do not depend on the seed."""
    return _cached_programs(
      DecoderSearch(self.models, dataclasses.replace(decoding, seed=0), constraint),
      self.max_length,
      sentence_sharding(self.mesh, decoding.batch_size),
    )


_cached_programs = functools.lru_cache(maxsize=8)(SearchPrograms)
