"""Search finds what brute force finds, and an input does not depend on its neighbors."""

import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops.toy_language import (
  END,
  LIMITS,
  MAX_LENGTH,
  STATES,
  B,
  N,
  forced,
  tables,
  toy,
  words,
)
from transformer.ops.beam_search import beam_search
from transformer.ops.sampling import greedy_search
from transformer.ops.search import (
  PAD,
  Hypotheses,
  StateArray,
  cache_lengths,
  plain_arrays,
  run_search,
  with_arrays,
)
from transformer.ops.selection import add_terms, log_softmax_terms

ALPHAS = [0.0, 0.6, 1.5]


@functools.cache
def searcher(beam_size, alpha, max_length=MAX_LENGTH, grows=False, nbest=1):
  """Returns a compiled (tables, limits) -> `Hypotheses`; greedy search for a beam size of 0."""

  def search(table_BXN, limits_B):
    step, cache, options = toy(
      table_BXN,
      limits_B.shape[0],
      beam_size or 1,
      max_length=max_length,
      alpha=alpha,
      grows=grows,
    )
    if beam_size:
      return run_search(
        beam_search(step, cache, limits_B, options, beam_size=beam_size, nbest=nbest)
      )
    return run_search(greedy_search(step, cache, limits_B, options))

  return jax.jit(search)


def find(
  beam_size, alpha, table, limits=LIMITS, max_length=MAX_LENGTH, nbest=1
) -> Hypotheses:
  search = searcher(beam_size, alpha, max_length, nbest=nbest)
  return jax.device_get(search(table, jnp.asarray(limits, jnp.int32)))


def penalized(log_prob, length, alpha):
  return log_prob / ((5 + length) / 6) ** alpha


def slow_beam(table_XN, limit, width, alpha, nbest):
  """Does beam search on Python lists; it ends early for the `nbest` best, or never if 0."""
  live, ended = [(0.0, ())], []
  for t in range(1, limit + 1):
    extended = sorted(
      (
        (forced(table_XN, (*prefix, token)), (*prefix, token))
        for _, prefix in live
        for token in range(N)
      ),
      reverse=True,
    )
    ended += [
      (penalized(p, t, alpha), tokens)
      for p, tokens in extended[:width]
      if tokens[-1] == END
    ]
    live = [(p, tokens) for p, tokens in extended if tokens[-1] != END][:width]
    final = sorted(ended, reverse=True)[nbest - 1 : nbest]
    if len(ended) >= width or (
      final and final[0][0] >= penalized(live[0][0], limit, alpha)
    ):
      break
  answer = ended or [(penalized(p, limit, alpha), tokens) for p, tokens in live]
  return sorted(answer, reverse=True)[:width]


@pytest.mark.parametrize('alpha', ALPHAS)
def test_a_beam_of_one_is_greedy_search(alpha):
  for seed in range(5):
    greedy = find(0, alpha, tables(seed))
    chex.assert_trees_all_equal(find(1, alpha, tables(seed)), greedy)
    for b, limit in enumerate(LIMITS):
      ((_, tokens),) = slow_beam(tables(seed)[b], limit, 1, alpha, 0)
      assert words(greedy, b, 0) == tokens


@given(
  st.integers(0, 2**32 - 1),
  st.integers(1, 4),
  st.sampled_from([0.0, 0.3, 0.8]),
  st.tuples(*[st.integers(0, 4)] * B),
  st.sampled_from(ALPHAS),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_wide_beam_is_brute_force_with_ties_and_impossible_tokens(
  seed, values, missing, limits, alpha
):
  vocabulary, width = 3, 24
  rng = np.random.default_rng(seed)
  # Few values make ties. Some tokens are impossible, but never all.
  logits = rng.integers(0, values, (B, STATES, vocabulary)).astype(np.float32)
  always = np.arange(vocabulary) == rng.integers(vocabulary)
  logits[(rng.random(logits.shape) < missing) & ~always] = -np.inf
  table = np.asarray(jax.nn.log_softmax(logits))
  result = find(width, alpha, table, limits, 4)
  for b, limit in enumerate(limits):
    ends = [
      tokens
      for n in range(limit)
      for prefix in itertools.product([0, 1], repeat=n)
      for tokens in [(*prefix, END)]
    ]
    # Where no hypothesis can end in time, the live ones are the result.
    for answers in (
      ends,
      list(itertools.product([0, 1], repeat=limit)) if limit else [],
    ):
      scores = [
        penalized(forced(table[b], tokens), len(tokens), alpha) for tokens in answers
      ]
      if np.isfinite(scores).any():
        break
    else:
      assert not result.lengths[b].any() and np.isneginf(result.scores[b]).all()
      continue
    assert words(result, b, 0) in answers
    assert result.scores[b, 0] == pytest.approx(max(scores), rel=1e-5, abs=1e-6)
    assert forced(table[b], words(result, b, 0)) == pytest.approx(
      result.log_probs[b, 0], rel=1e-5, abs=1e-6
    )


@pytest.mark.long(but=('3-1-0.6', '4-3-1.5'))
@pytest.mark.parametrize(
  ('width', 'nbest', 'alpha'), [(2, 1, 0.0), (2, 1, 1.5), (3, 1, 0.6), (4, 3, 1.5)]
)
def test_all_hypotheses_of_a_beam_match_python_lists(width, nbest, alpha):
  ending_together = 0
  for seed in range(7):
    # With a likely EOS, several hypotheses end in one step, and the search continues.
    likely = 1.5 * (np.arange(N) == END) * (seed % 2)
    table = np.asarray(jax.nn.log_softmax(tables(seed) + likely))
    result = find(width, alpha, table, nbest=nbest)
    for b, limit in enumerate(LIMITS):
      wanted = [tokens for _, tokens in slow_beam(table[b], limit, width, alpha, nbest)]
      assert [
        words(result, b, w) for w in range(width) if result.lengths[b, w]
      ] == wanted
      # Stopping early never changes the best.
      assert wanted[0] == slow_beam(table[b], limit, width, alpha, 0)[0][1]
      lengths = [len(tokens) for tokens in wanted]
      ending_together += any(
        lengths.count(length) > 1 for length in lengths if length < limit
      )
  assert ending_together > 0


@pytest.mark.parametrize('width', [0, 2, 3])
def test_hypotheses_are_sorted_distinct_padded_and_have_the_scores_of_their_tokens(
  width,
):
  for seed, alpha in enumerate(ALPHAS):
    result = find(width, alpha, tables(seed))
    chex.assert_shape(result.tokens, (B, width or 1, MAX_LENGTH))
    assert np.all(result.scores[:, :-1] >= result.scores[:, 1:])
    assert np.all(result.lengths <= np.array(LIMITS)[:, None])
    for b, w in np.ndindex(*result.lengths.shape):
      tokens, length = words(result, b, w), result.lengths[b, w]
      assert np.all(result.tokens[b, w, length:] == PAD) and END not in tokens[:-1]
      log_prob = forced(tables(seed)[b], tokens) if tokens else -np.inf
      assert result.log_probs[b, w] == pytest.approx(log_prob, rel=1e-5)
      assert result.scores[b, w] == pytest.approx(
        penalized(log_prob, length, alpha), rel=1e-5
      )
    for b in range(B):
      present = [words(result, b, w) for w in range(width or 1) if result.lengths[b, w]]
      assert len(set(present)) == len(present) > 0


@pytest.mark.parametrize('width', [0, 3])
def test_a_cache_that_grows_changes_nothing(monkeypatch, width):
  monkeypatch.setattr('transformer.ops.search._FIRST_LENGTH', 2)
  for length, wanted in (
    (MAX_LENGTH, [2, 7]),
    (8, [2, 4, 8]),
    (31, [2, 4, 8, 31]),
    (1, [1]),
  ):
    assert cache_lengths(length) == wanted
  limits = jnp.asarray(LIMITS, jnp.int32)
  for seed in range(3):
    chex.assert_trees_all_equal(
      searcher(width, 0.6, grows=True)(tables(seed), limits),
      searcher(width, 0.6)(tables(seed), limits),
    )


@pytest.mark.parametrize('width', [0, 3])
def test_an_input_does_not_depend_on_its_neighbors(width):
  table = tables(1)
  together = find(width, 0.6, table)
  for b in range(B):
    alone = find(width, 0.6, table, np.where(np.arange(B) == b, LIMITS, 0))
    chex.assert_trees_all_equal(
      jax.tree.map(lambda x, b=b: x[b], alone),
      jax.tree.map(lambda x, b=b: x[b], together),
    )
  order = np.array([2, 0, 1])
  permuted = find(width, 0.6, table[order], np.array(LIMITS)[order])
  chex.assert_trees_all_equal(permuted, jax.tree.map(lambda x: x[order], together))


@pytest.mark.long(but=('3',))
@pytest.mark.parametrize('width', [0, 3])
def test_eager_jit_vmap_and_pmap_agree(width):
  table, limits = jnp.asarray(tables(2)), jnp.asarray(LIMITS, jnp.int32)
  search = searcher(width, 0.6)
  wanted = search(table, limits)
  with jax.disable_jit():
    chex.assert_trees_all_close(search(table, limits), wanted, rtol=1e-6)
  for lift in (jax.vmap, jax.pmap):
    rows = lift(lambda table, limit: search(table[None], limit[None]))(table, limits)
    chex.assert_trees_all_close(
      jax.tree.map(lambda x: x[:, 0], rows), wanted, rtol=1e-6
    )


@pytest.mark.parametrize('vocabulary', [N, 211])
def test_a_beam_search_needs_no_log_probabilities_that_are_added_up(vocabulary):
  logits = 2.0 * tables(4, vocabulary) + 3.0
  limits_B = jnp.asarray(LIMITS, jnp.int32)

  def search(adds_up):
    step, cache, options = toy(logits, B, 3)

    def normalized_step(tokens_BW, t, cache):
      logits_BWN, cache = step(tokens_BW, t, cache)
      parts = log_softmax_terms(logits_BWN)
      return (add_terms(*parts) if adds_up else parts), cache

    return run_search(
      beam_search(normalized_step, cache, limits_B, options, beam_size=3, nbest=3)
    )

  chex.assert_trees_all_equal(
    *(jax.jit(search, static_argnums=0)(way) for way in (False, True))
  )


def test_log_softmax_terms_add_up_to_log_probabilities():
  logits_BWN = 30.0 * np.random.default_rng(0).normal(size=(2, 3, 211)).astype(
    np.float32
  )
  logits_BWN[0, 0, 7] = -np.inf
  log_probs_BWN = jax.jit(lambda logits: add_terms(*log_softmax_terms(logits)))(
    logits_BWN
  )
  wanted_BWN = jax.nn.log_softmax(logits_BWN)
  chex.assert_trees_all_close(log_probs_BWN, wanted_BWN, rtol=1e-6, atol=1e-6)


def test_a_plain_array_of_a_state_is_replaced_too():
  state = {'kept': StateArray(jnp.zeros(3)), 'plain': jnp.zeros(2)}
  new = with_arrays(state, {'kept': jnp.ones(3), 'plain': jnp.ones(2)})
  assert jax.tree.map(float, jax.tree.map(jnp.sum, plain_arrays(new))) == {
    'kept': 3,
    'plain': 2,
  }
