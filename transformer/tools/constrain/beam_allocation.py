"""Dynamic beam allocation, so that hypotheses contain required phrases.

Post and Vilar, 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation for Neural
Machine Translation", https://arxiv.org/abs/1804.06609. Hypotheses that have met the same number of
phrase tokens form a bank. Letters: J phrases, C candidates for the beam.
"""

import jax
import jax.numpy as jnp

from transformer.data.batch import EOS_ID
from transformer.ops.beam_search import Choice, Extensions, Policy
from transformer.ops.selection import gather_beams, top_sums
from transformer.tools.constrain.phrases import PhraseMatcher, reorder


def allocate_beams(matcher: PhraseMatcher, beams: int) -> Policy:
  """Returns the policy that keeps the likeliest hypotheses of every bank of W = `beams`.

  The candidates of a step are

  - the 2W likeliest extensions of all hypotheses, as in `beam_search`,
  - for each hypothesis, the likeliest extension by a token that is not EOS and does not continue a
    word that should end with a phrase, and
  - for each hypothesis, the extensions by the next token of each unmet phrase.

  Every bank with candidates gets an equal number of the W beams; a remainder goes to the banks with
  more tokens. Beams that a bank cannot fill go to the others. Without phrases, this equals
  `beam_search`, bit for bit. Hypotheses that end within the length limit contain all phrases. If
  none ends, the live hypotheses with the most met tokens are returned.
  """

  def choose(log_probs_BWN, live_log_probs_BW, progress):
    batch, _, vocabulary = log_probs_BWN.shape
    is_end_N = jnp.arange(vocabulary) == EOS_ID
    ends_early_BWN = is_end_N[None, None] & ~matcher.is_complete(progress)[:, :, None]
    log_probs_BWN = jnp.where(ends_early_BWN, -jnp.inf, log_probs_BWN)
    _, origin_BC, token_BC = top_sums(
      log_probs_BWN, [live_log_probs_BW], min(2 * beams, log_probs_BWN[0].size)
    )
    likeliest_BC = origin_BC * vocabulary + token_BC
    hypothesis_BC = _hypothesis_candidates(matcher, progress, log_probs_BWN, is_end_N)
    # Sorting by index keeps the order of ties.
    index_BC = jnp.sort(jnp.concatenate([likeliest_BC, hypothesis_BC], axis=1), axis=1)
    repeated_BC = jnp.pad(index_BC[:, 1:] == index_BC[:, :-1], ((0, 0), (1, 0)))
    token_BC = index_BC % vocabulary
    origin_BC = index_BC // vocabulary
    log_probs_BC = jnp.take_along_axis(
      log_probs_BWN.reshape(batch, -1), index_BC, axis=1
    )
    totals_BC = gather_beams(live_log_probs_BW, origin_BC) + log_probs_BC
    totals_BC = jnp.where(repeated_BC, -jnp.inf, totals_BC)

    next_progress = matcher.after(reorder(progress, origin_BC), token_BC)
    bank_BC = matcher.bank(next_progress)
    # An EOS that is not chosen does not stay live either.
    live_totals_BC = jnp.where(token_BC == EOS_ID, -jnp.inf, totals_BC)
    best_BW = _share_beams(bank_BC, totals_BC, beams)
    live_BW = _share_beams(bank_BC, live_totals_BC, beams)

    def extensions(totals_BC, chosen_BW):
      chosen = [
        gather_beams(part, chosen_BW) for part in (totals_BC, origin_BC, token_BC)
      ]
      return Extensions(*chosen)

    best = extensions(totals_BC, best_BW)
    live = extensions(live_totals_BC, live_BW)
    return Choice(best, live, reorder(next_progress, live_BW))

  return Policy(choose, matcher.start(beams), matcher.bank)


def _hypothesis_candidates(matcher: PhraseMatcher, progress, log_probs_BWN, is_end_N):
  """Returns each hypothesis's own candidates, which need not be among the likeliest of all.

  They are int32 [B, C], indices into the extensions of all hypotheses; some may be equal.
  """
  batch, beams, vocabulary = log_probs_BWN.shape
  loses_BWN = matcher.is_pending(progress)[:, :, None] & matcher.continues_N[None, None]
  masked_BWN = jnp.where(loses_BWN | is_end_N[None, None], -jnp.inf, log_probs_BWN)
  keeping_BW1 = jnp.argmax(masked_BWN, axis=-1, keepdims=True).astype(jnp.int32)
  needed_BWJ = matcher.wanted(progress)
  needed_BWJ = jnp.where(needed_BWJ < 0, keeping_BW1, needed_BWJ)
  tokens_BWC = jnp.concatenate([keeping_BW1, needed_BWJ], axis=-1)
  offset_W = jnp.arange(beams, dtype=jnp.int32) * vocabulary
  return (tokens_BWC + offset_W[None, :, None]).reshape(batch, -1)


def _share_beams(bank_BC, totals_BC, beams):
  """Returns the indices of `beams` candidates, divided evenly among the banks, int32 [B, W].

  First the likeliest candidate of each bank, in descending order of met tokens; then the second of
  each bank; and so on. Candidates with −inf come last.
  """
  bank_BC = jnp.where(jnp.isfinite(totals_BC), bank_BC, -1)
  by_bank_BC = jnp.lexsort((-totals_BC, -bank_BC), axis=-1)
  bank_BC = gather_beams(bank_BC, by_bank_BC)
  place_C = jnp.arange(bank_BC.shape[1], dtype=jnp.int32)
  changes_BC = bank_BC[:, 1:] != bank_BC[:, :-1]
  begins_BC = jnp.pad(changes_BC, ((0, 0), (1, 0)), constant_values=True)
  first_BC = jax.lax.cummax(jnp.where(begins_BC, place_C[None], 0), axis=1)
  rank_BC = place_C[None] - first_BC
  rank_BC = jnp.where(bank_BC < 0, bank_BC.shape[1], rank_BC)
  order_BC = jnp.lexsort((-bank_BC, rank_BC), axis=-1)
  return gather_beams(by_bank_BC, order_BC[:, :beams]).astype(jnp.int32)
