"""Constraints: what translations must obey, whatever the model and the search."""

from collections.abc import Sequence
from typing import Any

import jax

from transformer.ops.beam_search import Policy
from transformer.ops.search import StateArray, arrays, with_arrays


class Constraint:
  """Leaves translations free; the base class of constraints.

  The static methods are parts of compiled programs, pure functions on arrays. Sentences share a
  batch if their arrays have the same shapes. Rows of a batch without a sentence have zeros.

  Attributes:
    tables: arrays that all sentences share, in nested tuples.
  """

  tables: Any = ()

  def rows(
    self, vocabulary, limits: Sequence[int], room: int, first: int
  ) -> Sequence[Any]:
    """Returns the arrays of each sentence, in nested tuples; None for a free sentence.

    Args:
      vocabulary: the `Vocabulary` of the target language.
      limits: the most tokens of each sentence's translation, the end token included.
      room: the most tokens of any translation.
      first: the number of sentences before these, for errors.

    Raises:
      UserError: no translation of a sentence can obey.
    """
    return [None] * len(limits)

  @staticmethod
  def start(rows, shape: tuple[int, int]) -> Any:
    """Returns the state of hypotheses before their first token, leaves [B, W, ...] as `shape`."""
    return ()

  @staticmethod
  def allow(rows, tables, t, last_BW, state, log_probs_BWN) -> tuple[jax.Array, Any]:
    """Returns the log-probabilities, with −inf for tokens that must not follow, and the new state.

    There are `t` tokens so far. `state` does not know the last of them yet, `last_BW`, which is the
    begin token if t is 0.
    """
    return log_probs_BWN, state

  @staticmethod
  def policy(rows, tables, beams: int) -> Policy | None:
    """Returns the rule by which a beam search chooses its beam; None is the search's own."""
    return None


FREE = Constraint()


def obeying(
  constraint: type[Constraint],
  rows,
  tables,
  step,
  cache: Any,
  shape: tuple[int, int],
):
  """Returns a step function and its cache, as in `ops.search`, that obey a constraint.

  Tokens that are allowed keep the log-probabilities of the model. So scores stay comparable with
  those of a free search. `shape` is the numbers of inputs and of hypotheses of each, B and W.
  """

  def obeying_step(tokens_BW, t, cache):
    inner, state = cache
    log_probs_BWN, inner = step(tokens_BW, t, inner)
    log_probs_BWN, new = constraint.allow(
      rows, tables, t, tokens_BW, arrays(state), log_probs_BWN
    )
    return log_probs_BWN, (inner, with_arrays(state, new))

  state = jax.tree.map(
    lambda leaf: StateArray(leaf, by_hypothesis=True), constraint.start(rows, shape)
  )
  return obeying_step, (cache, state)
