"""The compiled programs of a search in parts, between which batches can be regrouped.

The result for a row of a batch depends neither on the index of the row nor on the other rows. So a
sentence can move to another batch in the middle of its search.
"""

import functools
import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from transformer import plugins
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.decoding.decoder_search import DecoderSearch, SearchInputs
from transformer.model.building import python_modules
from transformer.model.search_state import DecoderState, EncodedSource, KVCache
from transformer.ops.beam_search import BeamSearchState
from transformer.ops.sampling import RolloutState
from transformer.ops.search import (
  Hypotheses,
  cache_lengths,
  extend_to,
  grow_state,
  pad_sources,
)
from transformer.system import processes
from transformer.system.traced_programs import cache_traced, register_named_tuples
from transformer.training.mesh import replicated

# Minimum padded length of encoded sources, so that more sentences share batches. A separate bucket
# for a few longer sentences would take longer than attention to more padding.
_SHORTEST = 64
# Tokens before a search first pauses to be refilled; few translations are shorter.
_FIRST_STOP = 8
# Tokens between later pauses.
_STOPS = 4


class BatchState(NamedTuple):
  """The state of a batch of sentences in the middle of their search.

  The first axis of each array is the sentence; scalars are for all sentences.
  """

  inputs: SearchInputs  # with encoded sources
  search: Any  # the state of the search of `ops`


register_named_tuples(
  KVCache,
  EncodedSource,
  DecoderState,
  SearchInputs,
  BatchState,
  Hypotheses,
  RolloutState,
  BeamSearchState,
)
# Runs between two calls of `advance` if the length of the cache changes.
_grow = jax.jit(grow_state, static_argnums=1)


def encoded_length(length: int, max_source_length: int) -> int:
  """Returns the padded length of encoded sources, given the padded length of their ids."""
  return min(max(length, _SHORTEST), max_source_length)


class SearchPrograms:
  """The programs of a search, each compiled for a shape when it is first needed.

  They take the parameters of each model, and the constraint's `tables`. `length` is the length of
  encoded sources.

  Attributes:
    max_source_length: maximum tokens of a source, EOS included.
  """

  def __init__(
    self, search: DecoderSearch, max_source_length: int, batch_sharding: NamedSharding
  ):
    """Plans the programs for sources of at most `max_source_length` tokens.

    `batch_sharding` splits the sentences of a batch over devices.
    """
    self._search = search
    self.max_source_length = max_source_length
    self._batch_sharding = batch_sharding
    self._everywhere = replicated(batch_sharding.mesh)
    self._identity = repr((search, max_source_length, PAD_ID, BOS_ID, EOS_ID))
    self._modules = [search.constraint.__module__]
    for model in search.models:
      self._modules += python_modules(model)
    if search.decoding.search != 'default':
      self._modules.append(plugins.name_of(search.decoding.search).partition(':')[0])
    self._programs = {}
    self._lock = threading.Lock()

  def begin(self, params, tables, inputs: SearchInputs) -> BatchState:
    """Encodes padded source ids, EOS included; returns the state before the first token."""
    inputs = processes.to_global(inputs, self._batch_sharding)
    length = encoded_length(inputs.sources.shape[1], self.max_source_length)
    arguments = params, inputs, (), (tables, np.int32(0))
    _, program = self._program(self._begin, length, arguments)
    state, _ = program(*arguments)
    return state

  def advance(
    self, params, tables, state: BatchState, length: int, t: int, pause_for_refill: bool
  ) -> tuple[BatchState, int, jax.Array, Hypotheses]:
    """Adds tokens to hypotheses of `t` tokens; stops early if every sentence is finished.

    Stops when the cache is full; with `pause_for_refill`, also every few tokens.

    Returns:
      The state, which reuses the memory of the previous state; the number of tokens; whether each
      sentence is finished; and the hypotheses, which are final for finished sentences.
    """
    inputs, search = state
    lengths = cache_lengths(self._max_length(length))
    full = next(size for size in lengths if size > t)
    if t in lengths:
      search = _grow(search, full)
    stop = t + _STOPS if t else _FIRST_STOP
    t = min(stop, full) if pause_for_refill else full
    arguments = params, inputs, search, (tables, np.int32(t))
    _, program = self._program(self._advance, length, arguments)
    search, (done_B, best) = program(*arguments)
    return BatchState(inputs, search), t, done_B, best

  def compile_largest(self, params, inputs: SearchInputs) -> Any:
    """Compiles the program that needs the most memory: the last tokens of a batch.

    `params` are the parameters of later calls, or their shapes and shardings; there is no
    constraint. The state is an argument of the program, which reuses its memory.
    """
    length = encoded_length(inputs.sources.shape[1], self.max_source_length)
    shared = (), np.int32(0)

    def largest(params, inputs):
      (inputs, search), _ = self._begin(length, params, inputs, (), shared)
      return inputs, grow_state(search, self._max_length(length))

    arguments = params, *jax.eval_shape(largest, params, inputs), shared
    key, program = self._program(self._advance, length, arguments)
    # An earlier training may have compiled it.
    if not isinstance(program, jax.stages.Compiled):
      program = program.lower(*arguments).compile()
      self._programs[key] = program
    return program

  def _max_length(self, length: int) -> int:
    """Returns the maximum tokens of translations of encoded sources of this length."""
    return length + self._search.decoding.max_extra_length

  def _begin(self, length: int, params, inputs: SearchInputs, _, shared):
    tables, _ = shared
    states, sources = self._search.start(params, inputs.sources)
    inputs = inputs._replace(sources=pad_sources(sources, length))
    max_length = self._max_length(length)
    search = self._search.build_search(params, inputs, states, max_length, tables)
    first, *_ = cache_lengths(max_length)
    return BatchState(inputs, grow_state(search.initial_state, first)), ()

  def _advance(self, length: int, params, inputs: SearchInputs, state, shared):
    tables, until = shared
    max_length = self._max_length(length)
    search = self._search.build_search(params, inputs, (), max_length, tables)
    state = extend_to(search, state, until)
    done_B = jnp.all(state.done.reshape(len(state.done), -1), axis=1)
    return state, (done_B, search.finish(state))

  def _program(self, function: Any, length: int, arguments) -> tuple:
    """Returns the key and the program for sources of this length and arguments of these shapes.

    A program is a function (params, per sentence, state per sentence, shared) -> (state per
    sentence, shared). Shared arrays are replicated on all devices. The state is donated.
    """
    leaves, tree = jax.tree.flatten(arguments[1:])
    name = f'{function.__name__} {length}'
    key = name, tree, *((np.shape(leaf), leaf.dtype) for leaf in leaves)
    with self._lock:
      if key not in self._programs:
        function = functools.partial(function, length)
        if self._batch_sharding.mesh.size == 1:
          identity = f'{name}, {self._identity}'
          function = cache_traced(function, identity, self._modules, arguments)
        state_sharding = self._everywhere
        if not self._batch_sharding.is_fully_replicated:
          state_sharding = self._by_rows(jax.eval_shape(function, *arguments)[0])
        self._programs[key] = jax.jit(
          function,
          donate_argnums=2,
          out_shardings=(state_sharding, self._everywhere),
          in_shardings=(
            None,
            self._batch_sharding,
            self._by_rows(arguments[2]),
            self._everywhere,
          ),
        )
    return key, self._programs[key]

  def _by_rows(self, leaves):
    return jax.tree.map(
      lambda leaf: self._batch_sharding if np.ndim(leaf) else self._everywhere, leaves
    )
