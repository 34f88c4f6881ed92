"""Sampling over any step function, from its whole distribution or the likelier part.

A step is what `ops.search` describes. A draw is a function of its input's random
key, its own number and its position, and of nothing else: neither of the other
draws, nor of the other inputs.
"""

import math

import jax
import jax.numpy as jnp

from transformer.ops.search import Hypotheses, best, roll_out

# Smaller numbers are 0 to float32.
_SMALLEST = float(jnp.finfo(jnp.float32).tiny)
# What falls short of p by no more than float32 sums may be wrong by has reached it.
_ROUNDING = 1e-6


def sample_search(step, cache, limits_B, keys_B, *, samples, max_length, begin_id, end_id,
                  temperature=1.0, top_k=0, top_p=1.0, alpha=0.0, room=None) -> Hypotheses:
  """Draws W translations of each input, token by token, each for itself.

  Two draws may be the same. Draw w of an input is the same however many are drawn.

  Args:
    step: as `ops.search` describes, called with W = samples.
    cache: the step function's, before the first token.
    limits_B: int32 [B], the most tokens for each input, the end token included;
      an input with limit 0 costs nothing and gets nothing.
    keys_B: JAX random keys [B]. Those of the default generator, `threefry2x32`,
      give the same however the inputs are spread over devices.
    samples: W.
    max_length: static bound on the limits, T.
    begin_id: the token that precedes every hypothesis.
    end_id: the token that ends one.
    temperature: as in `truncated`.
    top_k: as in `truncated`.
    top_p: as in `truncated`.
    alpha: exponent of the length penalty in the score.
    room: as in `beam_search`.

  Returns:
    `Hypotheses`, by score. Log-probabilities and scores are those of the step
    itself, whatever the temperature, and however much was left out.

  Raises:
    ValueError: as `truncated`.
  """
  numbers_W = jnp.arange(samples, dtype=jnp.uint32)
  fold_in = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
  keys_BW = fold_in(keys_B, numbers_W)

  def draw(t, key, log_probs_N):
    return jax.random.categorical(jax.random.fold_in(key, t), log_probs_N)

  def choose(t, log_probs_BWN):
    allowed_BWN = truncated(log_probs_BWN, temperature=temperature, top_k=top_k, top_p=top_p)
    return jax.vmap(jax.vmap(draw, (None, 0, 0)), (None, 0, 0))(t, keys_BW, allowed_BWN)

  found = roll_out(choose, step, cache, limits_B, width=samples, max_length=max_length,
                   begin_id=begin_id, end_id=end_id, alpha=alpha, room=room)
  return best(found, samples)


def truncated(log_probs_BWN, *, temperature=1.0, top_k=0, top_p=1.0):
  """The distribution to draw from: sharpened or flattened, cut to its likelier part, renormalised.

  `top_p` is taken of what temperature and `top_k` have left.

  Args:
    log_probs_BWN: float32 log-probabilities, any leading axes.
    temperature: divides them; below 1 favours the likely, above 1 the unlikely.
    top_k: keeps the k likeliest tokens (Fan et al., 2018), and those that are
      exactly as likely as the last of them, as libraries do. 0 keeps all.
    top_p: keeps the smallest set of the likeliest tokens whose probabilities reach
      p together (Holtzman et al., 2020, section 3.1), one at least; of equally
      likely ones the first. 1 keeps all.

  Returns:
    float32 log-probabilities of the same shape; −inf is impossible, and what was
    impossible stays so.

  Raises:
    ValueError: a temperature, k or p is out of range.
  """
  if not 0.0 < temperature < math.inf:
    raise ValueError(f'the temperature must be above 0 and finite; got {temperature}')
  if top_k < 0:
    raise ValueError(f'top_k must be at least 0; got {top_k}')
  if not 0.0 < top_p <= 1.0:
    raise ValueError(f'top_p must be above 0 and at most 1; got {top_p}')
  below_BWN = log_probs_BWN - jnp.max(log_probs_BWN, axis=-1, keepdims=True)
  kept_BWN = log_probs_BWN > -jnp.inf
  if top_k:
    rank_BWN = _rank(below_BWN)
    kept_BWN &= rank_BWN <= _reaching(rank_BWN, jnp.ones_like(below_BWN), top_k)
  # The likeliest stays 0 under any temperature; the others may become −inf.
  scaled_BWN = jax.nn.log_softmax(below_BWN / max(temperature, _SMALLEST), where=kept_BWN)
  if top_p == 1.0:
    return scaled_BWN
  target = max(top_p * (1.0 - _ROUNDING), _SMALLEST)
  rank_BWN, probs_BWN = _rank(scaled_BWN), jnp.exp(scaled_BWN)
  last_BW1 = _reaching(rank_BWN, probs_BWN, target)
  before_BWN, equal_BWN = rank_BWN < last_BW1, rank_BWN == last_BW1
  missing_BW1 = target - _sum(probs_BWN, before_BWN)
  needed_BW1 = jnp.ceil(missing_BW1 / jnp.max(probs_BWN, axis=-1, keepdims=True, initial=0.0,
                                              where=equal_BWN))
  nucleus_BWN = before_BWN | (equal_BWN & (jnp.cumsum(equal_BWN, axis=-1) <= needed_BW1))
  return jax.nn.log_softmax(scaled_BWN, where=kept_BWN & nucleus_BWN)


def _sum(x_BWN, where_BWN):
  return jnp.sum(x_BWN, axis=-1, keepdims=True, where=where_BWN)


def _rank(log_probs_BWN):
  """int32 in the order of descending probability: the bits of floats ≥ 0 are in their order."""
  return jax.lax.bitcast_convert_type(jnp.abs(log_probs_BWN), jnp.int32)


def _reaching(rank_BWN, weights_BWN, target):
  """The lowest rank up to which the weights reach `target`; the highest integer if they never do.

  It is found bit by bit, with 31 sums over the vocabulary; sorting takes seven to
  ten times as long on a CPU.
  """
  def narrow(place, last_BW1):
    next_BW1 = last_BW1 | (jnp.int32(1) << (30 - place))
    short_BW1 = _sum(weights_BWN, rank_BWN < next_BW1) < target
    return jnp.where(short_BW1, next_BW1, last_BW1)

  zeros_BW1 = jnp.zeros((*rank_BWN.shape[:-1], 1), jnp.int32)
  return jax.lax.fori_loop(0, 31, narrow, zeros_BW1)
