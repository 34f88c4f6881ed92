"""The programs of a search in parts, between which batches can be made up anew.

What a program computes for a row of a batch depends neither on the place of the row nor on the
other rows. So a sentence may change its neighbours in the middle of its search.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer.decoding.batch_search import BatchSearch
from transformer.ops.search import Hypotheses
from transformer.ops.search_loop import advance_until, cache_lengths, grown
from transformer.system.traced_programs import keep_traced

_ROOMS = ('ops', 'model', 'decoding')  # The code of the programs.
# Encoded sources are padded to at least this many tokens, so that more of them share batches.
_SHORTEST = 32
# A search stops after so many tokens, since few translations are shorter; and then every so many.
_FIRST_STOP, _STOPS = 8, 4


class Sources(NamedTuple):
  """All that a search reads of its sentences, arrays whose first axis is that of the sentences.

  Attributes:
    encoded: the leaves of `Encoded`.
    given: the limits of length, the keys of samples and the rows of a constraint, as
      `BatchSearch.plan` takes them.
  """

  encoded: list
  given: tuple[Any, Any, Any]


class SearchParts:
  """The parts of a search, each compiled once for each shape.

  Outside the programs, the state of a search is a list of arrays. Their first axis is that of the
  sentences; scalars are the same for all sentences.
  """

  def __init__(self, search: BatchSearch, about: str, longest: int):
    """Plans the programs; each is compiled when it is first needed.

    Args:
      search: the search.
      about: text that names all that the search depends on.
      longest: the most tokens of a source.
    """
    constraint = search.constraint
    self._search, self._longest = search, longest
    self._about = f'{constraint.__module__}.{constraint.__qualname__}, {about}'
    package, *room = constraint.__module__.split('.')
    # A constraint from elsewhere may change without a trace.
    self._rooms = [*_ROOMS, '/'.join(room[:-1])] if package == __package__.split('.')[0] else None
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

  def begin(self, params, source_BS, given, tables) -> tuple[Sources, list]:
    """Encodes padded source ids; returns the sources of a search and its state at first.

    Args:
      params: the parameters.
      source_BS: padded source ids with their end tokens.
      given: as in `Sources`.
      tables: the other arrays of the constraint.
    """
    length = self.decoded_length(source_BS.shape[1])

    def begin(*arguments):
      return tuple(map(jax.tree.leaves, self._begin(length, *arguments)))

    encoded, state = self._run(f'begin {length}', begin, params, source_BS, given, tables)
    return Sources(encoded, given), state

  def advance(self, params, sources: Sources, state: list, tables, until: int
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

    state, done_B, found = self._run('advance', advance, params, tuple(sources), state, tables,
                                     np.int32(until), donated=(2,))
    return state, done_B, Hypotheses(*found)

  def with_room(self, params, sources: Sources, state: list, tables, t: int) -> list:
    """Returns the state after t tokens, with a longer cache if these have filled it."""
    lengths = cache_lengths(self.room(sources.encoded[0].shape[1]))
    if t not in lengths:
      return state
    longer = lengths[lengths.index(t) + 1]

    def grow(params, sources, state, tables):
      _, state, options = self._planned(params, sources, state, tables)
      return jax.tree.leaves(grown(state, longer, options))

    return self._run(f'grow {longer}', grow, params, tuple(sources), state, tables)

  def _begin(self, length, params, source_BS, given, tables):
    encoded = self._search.encode(params, source_BS).padded_to(length)
    search, options = self._search.plan(params, encoded, *given, tables)
    return encoded, grown(search.start, cache_lengths(options.max_length)[0], options)

  def _planned(self, params, sources, state: list, tables):
    """Returns the search that lists of arrays belong to, its state, and its options."""
    leaves, given = sources
    ids_BS = jax.ShapeDtypeStruct(leaves[0].shape, jnp.int32)
    trees = jax.eval_shape(functools.partial(self._begin, ids_BS.shape[1]), params, ids_BS, given,
                           tables)
    encoded, state = (jax.tree.unflatten(jax.tree.structure(tree), leaves)
                      for tree, leaves in zip(trees, (leaves, state), strict=True))
    search, options = self._search.plan(params, encoded, *given, tables)
    return search, state, options

  def _run(self, name, function, *arguments, donated=()):
    """Runs a program; it is compiled for the first arguments of these shapes."""
    key = (name, jax.tree.structure(arguments[1:]),
           *((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(arguments[1:])))
    with self._compiling:
      if key not in self._programs:
        self._programs[key] = (
            keep_traced(function, f'{name}, {self._about}', self._rooms, arguments, donated)
            if self._rooms else jax.jit(function, donate_argnums=donated))
    return self._programs[key](*arguments)
