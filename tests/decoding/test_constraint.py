"""Searches with a constraint find the results of brute force over the allowed outputs."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ops.toy_language import END, forced, tables, toy, words
from transformer.decoding.constraint import Constraint, apply_constraint
from transformer.ops.beam_search import beam_search
from transformer.ops.sampling import SamplingOptions, greedy_search, sample_search
from transformer.ops.search import PAD, run_search

N, LENGTH, WIDTH, ALPHA = 5, 3, 83, 0.6  # The beam is wide enough for brute force.
# The second input is free; the third's prefix is longer, and has forbidden tokens after it.
PREFIXES = ((3, PAD), (PAD, PAD), (4, 4))


class Once(Constraint):
  """A prefix, after which the token of the tables must not come again; counts it."""

  @staticmethod
  def start(ids_BP, shape):
    return jnp.zeros(shape, jnp.int32)

  @staticmethod
  def allow(ids_BP, tables, t, last_BW, state_BW, log_probs_BWN):
    count_BW = state_BW + ((last_BW == tables) & (t > 0))
    again_BWN = (count_BW > 0)[:, :, None] & (jnp.arange(N) == tables)[None, None]
    after_BWN = jnp.where(again_BWN, -jnp.inf, log_probs_BWN)
    wanted_B = jnp.take(ids_BP, t, axis=1, mode='fill', fill_value=PAD)[:, None, None]
    is_wanted_B1N = jnp.arange(N)[None, None] == wanted_B
    begun_BWN = jnp.where(is_wanted_B1N, log_probs_BWN, -jnp.inf)
    return jnp.where(wanted_B == PAD, after_BWN, begun_BWN), count_BW


@functools.cache
def searcher(width, grows=False, kind='beam', constraint=Once):
  """Returns a compiled (tables, prefixes) -> `Hypotheses`."""

  def search(table_BXN, prefix_BP):
    step, cache, options = toy(
      table_BXN, len(PREFIXES), width, max_length=LENGTH, alpha=ALPHA, grows=grows
    )
    step, cache = apply_constraint(
      constraint, prefix_BP, jnp.int32(4), step, cache, (len(PREFIXES), width)
    )
    limits_B = jnp.full(len(PREFIXES), LENGTH)
    if kind == 'greedy':
      return run_search(greedy_search(step, cache, limits_B, options))
    if kind == 'sample':
      keys_B = jax.random.split(jax.random.key(0), len(PREFIXES))
      return run_search(
        sample_search(
          step,
          cache,
          limits_B,
          keys_B,
          options,
          samples=width,
          sampling=SamplingOptions(),
        )
      )
    return run_search(
      beam_search(step, cache, limits_B, options, beam_size=width, nbest=5)
    )

  return jax.jit(search)


def find(table, *, width=WIDTH, prefixes=PREFIXES, **kinds):
  return jax.device_get(searcher(width, **kinds)(table, np.asarray(prefixes, np.int32)))


def allowed(tokens, prefix):
  prefix = [token for token in prefix if token != PAD]
  again = any(
    tokens[place] == 4 in tokens[:place] for place in range(len(prefix), len(tokens))
  )
  return list(tokens[: len(prefix)]) == prefix and not again


@pytest.mark.parametrize('grows', [False, True])
def test_a_wide_beam_matches_brute_force_over_allowed_outputs(grows):
  others = [token for token in range(N) if token != END]
  for seed in range(3):
    table = tables(seed)
    result = find(table, grows=grows)
    for b, prefix in enumerate(PREFIXES):
      best = sorted(
        (
          (forced(table[b], tokens) / ((5 + n) / 6) ** ALPHA, tokens)
          for n in range(1, LENGTH + 1)
          for begun in itertools.product(others, repeat=n - 1)
          for tokens in [(*begun, END)]
          if allowed(tokens, prefix)
        ),
        reverse=True,
      )
      for w, (score, tokens) in enumerate(best[:5]):
        assert words(result, b, w) == tokens
        assert result.scores[b, w] == pytest.approx(score, rel=1e-5)


@pytest.mark.parametrize('kind', ['greedy', 'sample'])
def test_every_search_obeys(kind):
  seen = set()
  for seed in range(3):
    result = find(tables(seed), width=1 if kind == 'greedy' else 7, kind=kind)
    for b, w in itertools.product(range(len(PREFIXES)), range(result.lengths.shape[1])):
      tokens = words(result, b, w)
      assert allowed(tokens, PREFIXES[b]), tokens
      assert result.log_probs[b, w] == pytest.approx(
        forced(tables(seed)[b], tokens), rel=1e-5
      )
      seen.add(tokens)
  assert len(seen) > 6
