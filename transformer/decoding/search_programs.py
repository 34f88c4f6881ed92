"""The programs of a search in parts, between which batches can be made up anew.

What a program computes for a row of a batch depends neither on the place of the row nor on the
other rows. So a sentence may change its neighbours in the middle of its search.
"""

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from transformer import own_code
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.decoding.model_search import Encoded, ModelSearch
from transformer.model import search_state
from transformer.model.building import modules_of
from transformer.model.search_state import DecoderState, KVCache, Source
from transformer.ops.beam_search import Beams
from transformer.ops.search import (
  Cache,
  Hypotheses,
  RollOut,
  advance_until,
  cache_lengths,
)
from transformer.system import processes
from transformer.system.traced_programs import keep_traced, register_tuples
from transformer.training.mesh import replicated

register_tuples(
  KVCache, Source, DecoderState, Encoded, Cache, Hypotheses, RollOut, Beams
)
# Encoded sources are padded to at least this many tokens, so that more of them share batches.
_SHORTEST = 32
# A search stops after so many tokens, since few translations are shorter; and then every so many.
_FIRST_STOP = 8
_STOPS = 4

# The sentences of a batch in the middle of their search: what the search reads of each, encoded
# sources and `given`, and its state. The first axis of each array is the sentence; scalars are for
# all.
State = tuple[Any, Any]

# The program between two calls of `advance` whose caches have other lengths.
_grow = jax.jit(search_state.grown, static_argnums=1)


class SearchPrograms:
  """The programs of a search, each compiled for each shape when it is first needed.

  Both take the parameters of each model and the constraint's `tables`. `given` has what
  `ModelSearch.plan` takes for each sentence: limits, keys and the constraint's rows.
  """

  def __init__(self, search: ModelSearch, longest: int, rows: NamedSharding):
    """Plans the programs for sources of at most `longest` tokens; `rows` splits a batch."""
    self._search = search
    self._longest = longest
    self._rows = rows
    self._everywhere = replicated(rows.mesh)
    self._about = repr((search, longest, PAD_ID, BOS_ID, EOS_ID))
    self._modules = [search.constraint.__module__]
    for model in search.models:
      self._modules += modules_of(model)
    if search.config.search != 'default':
      self._modules.append(own_code.name_of(search.config.search).partition(':')[0])
    self._programs: dict[Any, Any] = {}
    self._lock = threading.Lock()

  def decoded_length(self, length: int) -> int:
    """Returns the length that sources of padded ids are padded to once they are encoded."""
    return min(max(length, _SHORTEST), self._longest)

  def begin(self, params, tables, source_BS, given) -> State:
    """Encodes padded source ids with their end tokens; returns the state before all tokens."""
    source_BS, given = processes.place((source_BS, given), self._rows)
    arguments = params, (source_BS, given), (), tables
    _, program = self._program(self._begin, arguments)
    (encoded, state), _ = program(*arguments)
    return (encoded, given), state

  def advance(
    self, params, tables, state: State, t: int, pauses: bool
  ) -> tuple[State, int, jax.Array, Hypotheses]:
    """Adds some tokens to `t` tokens, fewer if the search for every sentence is over.

    It stops where the cache is full; and with `pauses` where sentences are often finished, too.

    Returns:
      The state, which takes the memory of the one before; the number of tokens; whether the search
      for each sentence is over; and the hypotheses, which are final where it is.
    """
    fixed, state = state
    lengths = self._lengths(fixed)
    full = next(length for length in lengths if length > t)
    if t in lengths:
      state = _grow(state, full)
    stop = t + _STOPS if t else _FIRST_STOP
    t = min(stop, full) if pauses else full
    arguments = params, fixed, state, (tables, np.int32(t))
    _, program = self._program(self._advance, arguments)
    state, (done_B, best) = program(*arguments)
    return (fixed, state), t, done_B, best

  def compile_largest(self, params, length: int, given) -> Any:
    """Compiles ahead of time what needs most memory: the last tokens of sources of some length.

    The parameters, or their shapes and shardings, are those of all calls; `given` has no
    constraint. The program takes the state, whose memory it uses again, as an argument.
    """
    source_BS = jax.ShapeDtypeStruct((len(given[0]), length), jnp.int32)
    (encoded, state), _ = jax.eval_shape(
      self._begin, params, (source_BS, given), (), ()
    )
    fixed = (
      encoded,
      jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), given),
    )
    longest = self._lengths(fixed)[-1]
    state = jax.eval_shape(lambda state: search_state.grown(state, longest), state)
    arguments = params, fixed, state, ((), np.int32(0))
    key, program = self._program(self._advance, arguments)
    if not isinstance(program, jax.stages.Compiled):  # By an earlier training.
      program = program.lower(*arguments).compile()
      self._programs[key] = program
    return self._programs[key]

  def _lengths(self, fixed) -> list[int]:
    encoded, _ = fixed
    source_length = encoded.is_token_BS.array.shape[1]
    return cache_lengths(source_length + self._search.config.max_extra_length)

  def _begin(self, params, sources, _, tables):
    source_BS, given = sources
    encoded, cache = self._search.start(params, source_BS)
    encoded = search_state.padded(encoded, self.decoded_length(source_BS.shape[1]))
    search = self._search.plan(params, (encoded, cache), *given, tables)
    first, *_ = cache_lengths(search.options.max_length)
    return (encoded, search_state.grown(search.start, first)), ()

  def _advance(self, params, fixed, state, common):
    tables, until = common
    encoded, given = fixed
    search = self._search.plan(params, (encoded, Cache((), ())), *given, tables)
    state = advance_until(search, state, until)
    done_B = jnp.all(state.done.reshape(len(state.done), -1), axis=1)
    return state, (done_B, search.finish(state))

  def _program(self, function: Any, arguments) -> tuple[Any, Any]:
    """Returns a program for arguments of these shapes, and its key.

    A program is a function (params, by sentence, state by sentence, for all) -> (state by sentence,
    for all). Every process holds the whole of what is for all. It takes the memory of the state.
    """
    leaves, tree = jax.tree.flatten(arguments[1:])
    name = function.__name__
    key = name, tree, *((np.shape(leaf), leaf.dtype) for leaf in leaves)
    with self._lock:
      if key not in self._programs:
        if self._rows.mesh.size == 1:
          function = keep_traced(
            function, f'{name}, {self._about}', self._modules, arguments
          )
        made = self._everywhere
        if not self._rows.is_fully_replicated:
          made = self._by_rows(jax.eval_shape(function, *arguments)[0])
        self._programs[key] = jax.jit(
          function,
          donate_argnums=2,
          out_shardings=(made, self._everywhere),
          in_shardings=(
            None,
            self._rows,
            self._by_rows(arguments[2]),
            self._everywhere,
          ),
        )
    return key, self._programs[key]

  def _by_rows(self, leaves):
    return jax.tree.map(
      lambda leaf: self._rows if np.ndim(leaf) else self._everywhere, leaves
    )
