"""Constraints on translations, independent of the model and of the search."""

from collections.abc import Sequence
from typing import Any

import jax

from transformer.ops.beam_search import Policy
from transformer.ops.search import StateArray, plain_arrays, with_arrays


class Constraint:
  """Base class of constraints, which allows every translation.

  The static methods are compiled into the search, and are pure functions on arrays. Sentences
  share a batch if their arrays have the same shapes. Unused rows of a batch hold zeros.

  Attributes:
    tables: arrays that all sentences share, in nested tuples.
  """

  tables: Any = ()

  def sentence_arrays(
    self, vocabulary, limits: Sequence[int], max_length: int, offset: int
  ) -> Sequence[Any]:
    """Returns the arrays of each sentence, in nested tuples; None if it is unconstrained.

    Args:
      vocabulary: the `Vocabulary` of the target language.
      limits: maximum tokens of each sentence's translation, EOS included.
      max_length: maximum tokens of any translation.
      offset: number of sentences before these, for error messages.

    Raises:
      UserError: no translation of a sentence can satisfy the constraint.
    """
    return [None] * len(limits)

  @staticmethod
  def start(sentence_arrays, shape: tuple[int, int]) -> Any:
    """Returns the hypotheses' state before the first token; leaves are [B, W, ...], as `shape`."""
    return ()

  @staticmethod
  def allow(
    sentence_arrays, tables, t, last_BW, state, log_probs_BWN
  ) -> tuple[jax.Array, Any]:
    """Returns the log-probabilities, with −inf for forbidden next tokens, and the new state.

    Hypotheses have `t` tokens. `state` does not yet include the last token, `last_BW`, which is BOS
    if t is 0.
    """
    return log_probs_BWN, state

  @staticmethod
  def policy(sentence_arrays, tables, beams: int) -> Policy | None:
    """Returns the rule by which a beam search selects its beam; None is the default rule."""
    return None


UNCONSTRAINED = Constraint()


def apply_constraint(
  constraint: type[Constraint],
  sentence_arrays,
  tables,
  step,
  cache: Any,
  shape: tuple[int, int],
):
  """Returns a step function and its cache, as in `ops.search`, with a constraint applied.

  Allowed tokens keep the log-probabilities of the model. So scores are comparable with the scores
  of an unconstrained search. `shape` is (B, W), the number of inputs and of hypotheses per input.
  """

  def constrained_step(tokens_BW, t, cache):
    inner, state = cache
    log_probs_BWN, inner = step(tokens_BW, t, inner)
    log_probs_BWN, new = constraint.allow(
      sentence_arrays, tables, t, tokens_BW, plain_arrays(state), log_probs_BWN
    )
    return log_probs_BWN, (inner, with_arrays(state, new))

  state = jax.tree.map(
    lambda leaf: StateArray(leaf, per_hypothesis=True),
    constraint.start(sentence_arrays, shape),
  )
  return constrained_step, (cache, state)
