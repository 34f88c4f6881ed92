"""Prefixes that translations must start with."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from transformer.data.batch import PAD_ID
from transformer.decoding.batching import padded
from transformer.errors import UserError


def prefix_tokens(
  lines: Sequence[str], vocabulary, limits: Sequence[int], max_length: int, offset: int
) -> list[np.ndarray]:
  """Returns the tokens of each prefix, padded with `PAD_ID`; arguments as in `sentence_arrays`."""
  if len(lines) != len(limits):
    raise UserError(
      f'each line needs a prefix, which may be empty; got {len(lines)} prefixes for '
      f'{len(limits)} lines'
    )
  prefixes = vocabulary.encode_batch(list(map(str.strip, lines)))
  check_lengths('the beginning of', list(map(len, prefixes)), limits, offset)
  return list(padded(prefixes, max_length, len(prefixes)))


def check_lengths(name: str, counts: Sequence[int], limits: Sequence[int], offset: int):
  """Raises `UserError`, with the number of the sentence, if tokens exceed a translation's limit."""
  for number, (count, limit) in enumerate(zip(counts, limits, strict=True), offset + 1):
    if count >= limit:
      raise UserError(
        f'{name} translation {number} must have fewer tokens than its limit, '
        f'{limit}; got {count}; shorten it, or raise decode.max_extra_length'
      )


def force_prefix(prefix_BP, t, log_probs_BWN, after_BWN):
  """Returns log-probabilities that allow only token t of a prefix, and `after_BWN` after its end.

  `prefix_BP` are the tokens of each prefix, padded with `PAD_ID`.
  """
  token_B = jnp.take(prefix_BP, t, axis=1, mode='fill', fill_value=PAD_ID)
  is_token_BN = jnp.arange(log_probs_BWN.shape[-1])[None] == token_B[:, None]
  begun_BWN = jnp.where(is_token_BN[:, None], log_probs_BWN, -jnp.inf)
  return jnp.where((token_B == PAD_ID)[:, None, None], after_BWN, begun_BWN)
