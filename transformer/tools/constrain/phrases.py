"""Phrases that hypotheses must contain, matched token by token.

Each phrase has a Knuth–Morris–Pratt automaton. Its state is the length of the longest prefix of the
phrase that the hypothesis ends with. So a phrase counts regardless of how its tokens were chosen,
an interrupted phrase starts again, and phrases may overlap. This file has four letters: J phrases,
L tokens of a phrase, K tokens that have been read, C hypotheses.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer.ops.search import PAD
from transformer.ops.selection import gather_beams
from transformer.system.traced_programs import register_named_tuples


class MatchProgress(NamedTuple):
  """How far hypotheses have matched phrases.

  A phrase with all its tokens read counts as met for now, and is met for good once the next token
  does not continue its last word.

  Attributes:
    met_BCJ: boolean, the phrases that a hypothesis contains for good.
    read_BCJ: int32, for each other phrase, the length of the prefix that the hypothesis ends with.
  """

  met_BCJ: jax.Array
  read_BCJ: jax.Array


register_named_tuples(MatchProgress)


class PhraseMatcher(NamedTuple):
  """The automata of phrases, built by `build_matcher`.

  Attributes:
    tokens_BJL: int32, the phrases, each padded with `PAD`.
    continues_N: boolean, the tokens that continue the preceding word.
    lengths_BJ: int32, the number of tokens of each phrase.
    borders_BJKL: boolean [B, J, L + 1, L]: the first l tokens equal the last of the first k.
  """

  tokens_BJL: jax.Array
  continues_N: jax.Array
  lengths_BJ: jax.Array
  borders_BJKL: jax.Array

  def start(self, beams) -> MatchProgress:
    """Returns the state of `beams` hypotheses per input before the first token."""
    batch, count = self.lengths_BJ.shape
    shape = (batch, beams, count)
    return MatchProgress(jnp.zeros(shape, bool), jnp.zeros(shape, jnp.int32))

  def after(self, progress: MatchProgress, token_BC) -> MatchProgress:
    """Returns the state after one more token of each hypothesis."""
    word_ends_BC1 = ~self.continues_N[token_BC][:, :, None]
    met_BCJ = progress.met_BCJ | self._is_whole(progress) & word_ends_BC1
    places_L = jnp.arange(self.tokens_BJL.shape[-1], dtype=jnp.int32)
    longer_BJL = places_L[None, None] < self.lengths_BJ[:, :, None]
    fits_BJCL = self.tokens_BJL[:, :, None] == token_BC[:, None, :, None]
    read_BJC = jnp.swapaxes(progress.read_BCJ, 1, 2)
    border_BJCL = jnp.take_along_axis(self.borders_BJKL, read_BJC[..., None], axis=2)
    grows_BJCL = border_BJCL & fits_BJCL & longer_BJL[:, :, None]
    read_BJC = jnp.max(
      jnp.where(grows_BJCL, places_L[None, None, None] + 1, 0), axis=-1
    )
    return MatchProgress(met_BCJ, jnp.where(met_BCJ, 0, jnp.swapaxes(read_BJC, 1, 2)))

  def is_complete(self, progress: MatchProgress):
    """Returns whether hypotheses contain all phrases if they end now, boolean [B, C]."""
    return jnp.all(progress.met_BCJ | self._is_read(progress), axis=-1)

  def is_pending(self, progress: MatchProgress):
    """Returns whether a phrase of a hypothesis counts only if its last word ends now, [B, C]."""
    return jnp.any(self._is_whole(progress), axis=-1)

  def bank(self, progress: MatchProgress):
    """Returns the number of tokens that hypotheses have met, int32 [B, C].

    This is the number of tokens of all phrases that are met for good, plus the tokens read of the
    other phrase that is read furthest: no token counts for several phrases.
    """
    lengths_BCJ = jnp.broadcast_to(self.lengths_BJ[:, None], progress.read_BCJ.shape)
    met_BC = jnp.sum(
      jnp.where(progress.met_BCJ, lengths_BCJ, 0), axis=-1, dtype=jnp.int32
    )
    furthest_BC = jnp.max(
      jnp.where(progress.met_BCJ, 0, progress.read_BCJ), axis=-1, initial=0
    )
    all_B1 = jnp.sum(self.lengths_BJ, axis=-1, dtype=jnp.int32)[:, None]
    return jnp.where(self.is_complete(progress), all_B1, met_BC + furthest_BC)

  def wanted(self, progress: MatchProgress):
    """Returns the token that each unmet phrase needs next, int32 [B, C, J]; −1 if none."""
    last = self.tokens_BJL.shape[-1] - 1
    place_BJC = jnp.swapaxes(jnp.minimum(progress.read_BCJ, last), 1, 2)
    token_BJC = jnp.take_along_axis(self.tokens_BJL, place_BJC, axis=2)
    counts_BCJ = progress.met_BCJ | self._is_read(progress)
    return jnp.where(counts_BCJ, -1, jnp.swapaxes(token_BJC, 1, 2))

  def _is_read(self, progress: MatchProgress):
    return progress.read_BCJ == self.lengths_BJ[:, None]

  def _is_whole(self, progress: MatchProgress):
    """Returns whether all tokens of an unmet, non-empty phrase were just read."""
    return ~progress.met_BCJ & self._is_read(progress) & (self.lengths_BJ > 0)[:, None]


def build_matcher(tokens_BJL, continues_N) -> PhraseMatcher:
  """Builds the automata of phrases that hypotheses of each input must contain as whole words.

  `tokens_BJL` are int32, each phrase padded with `PAD`; a phrase without tokens requires nothing.
  `continues_N` marks the tokens that continue the preceding word: a phrase that is followed by such
  a token does not count.
  """
  tokens_BJL = jnp.asarray(tokens_BJL)
  batch, count, length = tokens_BJL.shape
  lengths_BJ = jnp.sum(tokens_BJL != PAD, axis=-1, dtype=jnp.int32)

  def longer(border_BJL, token_BJ):
    """Returns the borders of a prefix with one more token."""
    rest_BJL = border_BJL[..., :-1] & (tokens_BJL[..., :-1] == token_BJ[..., None])
    border_BJL = jnp.concatenate([jnp.ones((batch, count, 1), bool), rest_BJL], axis=-1)
    return border_BJL, border_BJL

  is_first_L = jnp.arange(length) == 0
  first_BJL = jnp.broadcast_to(is_first_L[None, None], tokens_BJL.shape)
  _, borders = jax.lax.scan(longer, first_BJL, jnp.moveaxis(tokens_BJL, -1, 0))
  borders_BJKL = jnp.concatenate(
    [first_BJL[:, :, None], jnp.moveaxis(borders, 0, 2)], axis=2
  )
  return PhraseMatcher(tokens_BJL, jnp.asarray(continues_N), lengths_BJ, borders_BJKL)


def reorder(progress: MatchProgress, origin_BC) -> MatchProgress:
  """Returns the states of the hypotheses with the indices `origin_BC`."""
  return jax.tree.map(lambda leaf: gather_beams(leaf, origin_BC), progress)
