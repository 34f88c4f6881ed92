"""Prefixes: what the translation of each sentence begins with."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from transformer.data.batch import PAD_ID
from transformer.data.text.text_files import check_several
from transformer.decoding.constraint import Constraint
from transformer.errors import UserError


class Prefixes(Constraint):
  """Lets each translation begin with a text; a blank one leaves it free."""

  def __init__(self, lines: Sequence[str]):
    check_several(lines)
    self._lines = lines

  def rows(self, vocabulary, limits, room, first):
    return [tokens_P if tokens_P.any() else None
            for tokens_P in prefix_rows(self._lines, vocabulary, limits, room, first)]

  @staticmethod
  def allow(rows, tables, t, last_BW, state, log_probs_BWN):
    return begin(rows, t, log_probs_BWN, log_probs_BWN), state


def prefix_rows(lines: Sequence[str], vocabulary, limits: Sequence[int], room: int,
                first: int) -> list[np.ndarray]:
  """Returns the tokens of each prefix, `PAD_ID` after them; the arguments of `Constraint.rows`."""
  prefixes = vocabulary.encode_batch([line.strip() for line in lines])
  check_room('the beginning of', [len(prefix) for prefix in prefixes], limits, first)
  return [np.array(prefix + [PAD_ID] * (room - len(prefix)), np.int32) for prefix in prefixes]


def check_room(what: str, counts: Sequence[int], limits: Sequence[int], first: int):
  """Refuses more tokens than a translation has room for, by the number of its sentence."""
  for number, (count, limit) in enumerate(zip(counts, limits, strict=True), first + 1):
    if count >= limit:
      raise UserError(f'{what} translation {number} must have fewer tokens than its limit, '
                      f'{limit}; got {count}; shorten it, or raise decode.max_extra_length')


def begin(prefix_BP, t, log_probs_BWN, after_BWN):
  """Returns log-probabilities that allow only the next token of a prefix, while there is one.

  Args:
    prefix_BP: the tokens of prefixes, `PAD_ID` after them.
    t: the number of tokens so far.
    log_probs_BWN, after_BWN: the log-probabilities of the model, and those after the prefix.
  """
  length = prefix_BP.shape[1]
  wanted_B = jnp.where(t < length, prefix_BP[:, jnp.minimum(t, length - 1)], PAD_ID)
  is_wanted_BN = jnp.arange(log_probs_BWN.shape[-1])[None] == wanted_B[:, None]
  begun_BWN = jnp.where(is_wanted_BN[:, None], log_probs_BWN, -jnp.inf)
  return jnp.where((wanted_B == PAD_ID)[:, None, None], after_BWN, begun_BWN)
