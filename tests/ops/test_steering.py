"""Steered searches find what brute force finds among the sequences that are allowed."""

import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ops.toy_language import END, forced, tables, toy, words
from transformer.ops.beam_search import beam_search
from transformer.ops.sampling import SamplingOptions, sample_search
from transformer.ops.search import PAD, greedy_search
from transformer.ops.steering import Automaton, Steering, steer

N, LENGTH, WIDTH, ALPHA = 5, 3, 83, 0.6  # The beam is wide enough for brute force.
# The second input is free; the third's prefix is longer, and holds what is forbidden after it.
PREFIXES = ((3, PAD), (PAD, PAD), (4, 4))
# Token 4 must not follow token 4, so state 1 is that after a 4.
NO_DOUBLE_4 = Automaton(np.asarray([[0, 0, 0, 0, 1]] * 2, np.int32),
                        np.asarray([[False] * 5, [False] * 4 + [True]]))


@functools.cache
def searcher(width, grows=False, kind='beam'):
  """Returns a compiled (tables, prefixes, automaton) -> `Hypotheses`."""
  def search(table_BXN, prefix_BP, automaton):
    step, cache, options = toy(table_BXN, len(PREFIXES), width, max_length=LENGTH, alpha=ALPHA,
                               grows=grows)
    step, cache, grow = steer(step, cache, options.grow, Steering(prefix_BP, automaton), width)
    options, limits_B = options._replace(grow=grow), jnp.full(len(PREFIXES), LENGTH)
    if kind == 'greedy':
      return greedy_search(step, cache, limits_B, options)
    if kind == 'sample':
      keys_B = jax.random.split(jax.random.key(0), len(PREFIXES))
      return sample_search(step, cache, limits_B, keys_B, options, samples=width,
                           sampling=SamplingOptions())
    return beam_search(step, cache, limits_B, options, beam_size=width, nbest=5)
  return jax.jit(search)


def find(table, *, width=WIDTH, prefixes=PREFIXES, automaton=NO_DOUBLE_4, **kinds):
  return jax.device_get(searcher(width, **kinds)(table, np.asarray(prefixes, np.int32), automaton))


def allowed(tokens, prefix):
  prefix = [token for token in prefix if token != PAD]
  # What the prefix ends with counts for the tokens after it.
  rest = tokens[max(len(prefix) - 1, 0):]
  doubled = list(rest).count(4) > 1 and any(a == b == 4 for a, b in itertools.pairwise(rest))
  return list(tokens[:len(prefix)]) == prefix and not doubled


@pytest.mark.parametrize('grows', [False, True])
def test_a_wide_beam_is_brute_force_over_what_is_allowed(grows):
  others = [token for token in range(N) if token != END]
  for seed in range(3):
    table = tables(seed)
    found = find(table, grows=grows)
    for b, prefix in enumerate(PREFIXES):
      best = sorted((
          (forced(table[b], tokens) / ((5 + n) / 6) ** ALPHA, tokens)
          for n in range(1, LENGTH + 1) for begun in itertools.product(others, repeat=n - 1)
          for tokens in [(*begun, END)] if allowed(tokens, prefix)), reverse=True)
      for w, (score, tokens) in enumerate(best[:5]):
        assert words(found, b, w) == tokens
        assert found.scores[b, w] == pytest.approx(score, rel=1e-5)


@pytest.mark.parametrize('kind', ['greedy', 'sample'])
def test_every_search_obeys(kind):
  seen = set()
  for seed in range(5):
    found = find(tables(seed), width=1 if kind == 'greedy' else 7, kind=kind)
    for b, w in itertools.product(range(len(PREFIXES)), range(found.lengths.shape[1])):
      tokens = words(found, b, w)
      assert allowed(tokens, PREFIXES[b]), tokens
      assert found.log_probs[b, w] == pytest.approx(forced(tables(seed)[b], tokens), rel=1e-5)
      seen.add(tokens)
  assert len(seen) > 8


def test_without_demands_nothing_changes():
  free, none = np.zeros((3, 2), np.int32), np.zeros((3, 0), np.int32)
  step, cache, options = toy(tables(), 3, 4, max_length=LENGTH, alpha=ALPHA)
  limits_B = jnp.full(3, LENGTH)
  plain = jax.jit(lambda: beam_search(step, cache, limits_B, options, beam_size=4, nbest=5 - 1))()
  for prefixes in (free, none):
    steered = find(tables(), width=4, prefixes=prefixes, automaton=None)
    chex.assert_trees_all_equal(jax.device_get(plain).tokens, steered.tokens)
    np.testing.assert_allclose(plain.scores, steered.scores, rtol=1e-6)
