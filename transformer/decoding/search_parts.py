"""The programs of a search in parts, between which batches can be made up anew.

What a program computes for a row of a batch depends neither on the place of the row nor on the
other rows. So a sentence may change its neighbours in the middle of its search.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer.decoding.batch_search import BatchSearch, Encoded
from transformer.ops.search import Hypotheses
from transformer.ops.search_loop import advance_until, cache_lengths, grown
from transformer.ops.steering import Automaton, Steering
from transformer.system.traced_programs import keep_traced

_ROOMS = ('ops', 'model', 'decoding')  # The code of the programs.
# Encoded sources are padded to at least this many tokens, so that more of them share batches.
_SHORTEST = 32
# A search stops after so many tokens, since few translations are shorter; and then every so many.
_FIRST_STOP, _STOPS = 8, 4


class Sources(NamedTuple):
  """All that a search reads of its sources.

  Attributes:
    encoded: the encoded sources.
    limits_B: int32, the largest number of tokens for each translation.
    prefix_BP: as in `Steering`.
  """

  encoded: Encoded
  limits_B: jax.Array
  prefix_BP: jax.Array


class SearchParts:
  """The parts of a search, each compiled once for each shape.

  Outside the programs, the sources and the state of a search are lists of arrays. Their first axis
  is that of the sentences. Scalars are the same for all sentences. The tables of an `Automaton`
  are a list too, which is empty if nothing is forbidden.
  """

  def __init__(self, search: BatchSearch, about: str, longest: int):
    """Plans the programs; each is compiled when it is first needed.

    Args:
      search: the search, which must not draw samples.
      about: text that names all that the search depends on.
      longest: the most tokens of a source.
    """
    self._search, self._about, self._longest = search, about, longest
    self._programs: dict[Any, Callable] = {}
    self._compiling = threading.Lock()

  def decoded_length(self, length: int) -> int:
    """Returns the length that encoded sources are padded to; `length` is that of the ids."""
    return min(max(length, _SHORTEST), self._longest)

  def room(self, length: int) -> int:
    """Returns the most tokens of a translation whose encoded source is padded to `length`."""
    return length + self._search.config.max_extra_length

  def next_stop(self, t: int, length: int) -> int:
    """Returns how many tokens there are when a search of t tokens stops next."""
    full = min(each for each in cache_lengths(self.room(length)) if each > t)
    return min(t + _STOPS if t else _FIRST_STOP, full)

  def begin(self, params, source_BS, limits_B, prefix_BP, tables: Sequence[Any]
            ) -> tuple[list, list]:
    """Encodes padded source ids; returns the sources of a search and its state at first."""
    length = self.decoded_length(source_BS.shape[1])

    def begin(*arguments):
      return tuple(map(jax.tree.leaves, self._begin(length, *arguments)))

    return self._run(f'begin {length}', begin, params, source_BS, limits_B, prefix_BP, tables)

  def advance(self, params, sources: list, state: list, tables: Sequence[Any], until: int
              ) -> tuple[list, jax.Array, Hypotheses]:
    """Adds tokens until there are `until` of them, or the search for every sentence is over.

    Returns:
      The state, which takes the memory of the one before; whether the search for each sentence
      is over; and the hypotheses, which are final where it is.
    """
    def advance(params, sources, state, tables, until):
      search, state, _ = self._planned(params, sources, state, tables)
      state = advance_until(search, state, until)
      done_B = jnp.all(state.done.reshape(len(state.done), -1), axis=1)
      return jax.tree.leaves(state), done_B, tuple(search.finish(state))

    state, done_B, found = self._run('advance', advance, params, sources, state, tables,
                                     np.int32(until), donated=(2,))
    return state, done_B, Hypotheses(*found)

  def with_room(self, params, sources: list, state: list, tables: Sequence[Any], t: int) -> list:
    """Returns the state after t tokens, with a longer cache if these have filled it."""
    lengths = cache_lengths(self.room(sources[0].shape[1]))
    if t not in lengths:
      return state
    longer = lengths[lengths.index(t) + 1]

    def grow(params, sources, state, tables):
      _, state, options = self._planned(params, sources, state, tables)
      return jax.tree.leaves(grown(state, longer, options))

    return self._run(f'grow {longer}', grow, params, sources, state, tables)

  def _begin(self, length, params, source_BS, limits_B, prefix_BP, tables):
    encoded = self._search.encode(params, source_BS).padded_to(length)
    sources = Sources(encoded, limits_B, prefix_BP)
    search, options = self._plan(params, sources, tables)
    return sources, grown(search.start, cache_lengths(options.max_length)[0], options)

  def _plan(self, params, sources: Sources, tables):
    steering = None
    if tables or sources.prefix_BP.shape[1]:
      steering = Steering(sources.prefix_BP, Automaton(*tables) if tables else None)
    return self._search.plan(params, sources.encoded, sources.limits_B, steering)

  def _planned(self, params, sources: list, state: list, tables):
    """Returns the search that lists of arrays belong to, its state, and its options."""
    ids_BS = jax.ShapeDtypeStruct(sources[0].shape, jnp.int32)
    trees = jax.eval_shape(functools.partial(self._begin, ids_BS.shape[1]), params, ids_BS,
                           *sources[-2:], tables)
    sources, state = (jax.tree.unflatten(jax.tree.structure(tree), leaves)
                      for tree, leaves in zip(trees, (sources, state), strict=True))
    search, options = self._plan(params, sources, tables)
    return search, state, options

  def _run(self, name, function, *arguments, donated=()):
    """Runs a program; it is compiled for the first arguments of these shapes."""
    key = name, *((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(arguments[1:]))
    with self._compiling:
      if key not in self._programs:
        self._programs[key] = keep_traced(function, f'{name}, {self._about}', _ROOMS, arguments,
                                          donated)
    return self._programs[key](*arguments)
