"""Samples follow the requested distribution, and depend only on their key."""

import collections
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.ops.toy_language import (
  BEGIN,
  END,
  LIMITS,
  MAX_LENGTH,
  B,
  N,
  forced,
  tables,
  toy,
)
from transformer.ops.sampling import (
  SamplingOptions,
  apply_sampling_options,
  greedy_search,
  sample_search,
)
from transformer.ops.search import PAD, SearchOptions, run_search

W = 11
KEYS = jax.random.split(jax.random.key(0, impl='threefry2x32'), B)
NARROWER = {'temperature': 1.3, 'top_k': 4, 'top_p': 0.9}


@functools.cache
def searcher(samples, **options):
  """Returns a compiled (tables, limits, keys) -> `Hypotheses`; greedy search for 0 samples."""

  def search(table_BXN, limits_B, keys_B):
    step, cache, same = toy(table_BXN, limits_B.shape[0], samples or 1)
    if not samples:
      return run_search(greedy_search(step, cache, limits_B, same))
    return run_search(
      sample_search(
        step,
        cache,
        limits_B,
        keys_B,
        same,
        samples=samples,
        sampling=SamplingOptions(**options),
      )
    )

  return jax.jit(search)


def find(samples, table, limits=LIMITS, keys=KEYS, **options):
  limits = jnp.asarray(limits, jnp.int32)
  return jax.device_get(searcher(samples, **options)(table, limits, keys))


def drawn(result, b):
  """Returns the samples of an input with their log-probabilities, as a multiset."""
  return collections.Counter(
    (tuple(tokens), float(log_prob))
    for tokens, log_prob in zip(
      result.tokens[b].tolist(), result.log_probs[b], strict=True
    )
  )


def slow_truncated(log_probs_N, temperature, top_k, top_p):
  """Mimics `apply_sampling_options` by sorting, in float64; no two tokens may be equally likely."""
  scaled_N = np.asarray(log_probs_N, np.float64) / temperature
  order = np.argsort(-scaled_N)[: top_k or None]
  probs = np.exp(scaled_N[order] - scaled_N[order[0]])
  probs /= probs.sum()
  count = (
    1 + np.searchsorted(np.cumsum(probs), top_p - 1e-9) if top_p < 1 else len(probs)
  )
  answer_N = np.full(scaled_N.shape, -np.inf)
  answer_N[order[:count]] = np.log(probs[:count] / probs[:count].sum())
  return answer_N


@pytest.mark.parametrize(
  ('temperature', 'top_k', 'top_p'),
  [
    (1.0, 0, 1.0),
    (0.3, 0, 1.0),
    (2.5, 7, 1.0),
    (1.0, 1000, 1.0),
    (1.0, 0, 0.5),
    (2.5, 0, 0.93),
    (0.3, 83, 0.93),
    (2.5, 7, 0.5),
    (1.0, 0, 1e-6),
    (1.0, 1, 0.93),
  ],
)
def test_truncation_equals_sorting(temperature, top_k, top_p):
  logits = np.random.default_rng(3).normal(size=(2, 3, 211)) * 2.0
  log_probs = jax.nn.log_softmax(jnp.asarray(logits, jnp.float32))
  options = {'temperature': temperature, 'top_k': top_k, 'top_p': top_p}
  result = apply_sampling_options(log_probs, SamplingOptions(**options))
  chex.assert_shape(result, log_probs.shape)
  for place in np.ndindex(2, 3):
    np.testing.assert_allclose(
      result[place], slow_truncated(log_probs[place], **options), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
  ('probs', 'options', 'wanted'),
  [
    ([0.2, 0.3, 0.2, 0.1, 0.2], {'top_k': 2}, [0, 1, 2, 4]),  # All ties.
    ([0.2, 0.3, 0.2, 0.1, 0.2], {'top_k': 1}, [1]),
    ([0.2, 0.3, 0.2, 0.1, 0.2], {'top_p': 0.3}, [1]),
    ([0.2, 0.3, 0.2, 0.1, 0.2], {'top_p': 0.31}, [0, 1, 2, 4]),  # All ties.
    *[
      ([0.2, 0.5, 0.3], {'top_p': top_p}, tokens)
      for top_p, tokens in (
        (1e-50, [1]),
        (1e-9, [1]),
        (0.5, [1]),
        (0.501, [1, 2]),
        (0.8, [1, 2]),
        (0.801, [0, 1, 2]),
        (1.0, [0, 1, 2]),
      )
    ],
    # After top_k, the likeliest token has the probability 0.5 / 0.8.
    ([0.2, 0.5, 0.3], {'top_k': 2, 'top_p': 0.62}, [1]),
    ([0.2, 0.5, 0.3], {'top_k': 2, 'top_p': 0.63}, [1, 2]),
  ],
)
def test_candidates_of_top_k_and_top_p(probs, options, wanted):
  left = np.exp(
    apply_sampling_options(
      jnp.log(jnp.asarray(probs, jnp.float32)), SamplingOptions(**options)
    )
  )
  assert left.sum() == pytest.approx(1.0, rel=1e-5)
  assert np.flatnonzero(left).tolist() == wanted


def test_impossible_tokens_stay_impossible():
  never = -np.inf
  log_probs = jnp.asarray(
    [[never, -0.7, -0.7, never, never], [0.0, never, never, never, never], [never] * N],
    jnp.float32,
  )
  wanted = np.array(
    [
      [never, np.log(0.5), np.log(0.5), never, never],
      [0.0, never, never, never, never],
      [never] * N,
    ]
  )
  for options in ({}, {'temperature': 0.1}, {'top_k': 4}, {'top_p': 0.9999}, NARROWER):
    np.testing.assert_allclose(
      apply_sampling_options(log_probs, SamplingOptions(**options)), wanted, atol=1e-6
    )


@pytest.mark.parametrize(
  'options', [{'temperature': 1e-50}, {'top_k': 1}, {'top_p': 1e-6}]
)
def test_sampling_from_a_single_token_is_greedy_search(options):
  for seed in range(3):
    greedy, result = find(0, tables(seed)), find(2, tables(seed), **options)
    for w in range(2):
      chex.assert_trees_all_equal(
        jax.tree.map(lambda x, w=w: x[:, w : w + 1], result), greedy
      )


@pytest.mark.long(but=('options0', 'options4'))
@pytest.mark.parametrize(
  'options',
  [
    {},
    {'temperature': 0.6},
    {'temperature': 2.0},
    {'top_k': 2},
    {'top_p': 0.75},
    NARROWER,
  ],
)
def test_frequencies_are_the_probabilities_and_positions_are_independent(options):
  draws = 2003
  places = np.log(
    np.array([[0.4, 0.1, 0.0, 0.2, 0.3], [0.1, 0.4, 0.25, 0.2, 0.05]], np.float32)
    + np.float32(1e-30)
  )

  def step(tokens_BW, t, cache):
    row = jnp.asarray(places)[t]
    return jnp.broadcast_to(row, (*tokens_BW.shape, N)), cache

  result = jax.device_get(
    jax.jit(
      lambda: run_search(
        sample_search(
          step,
          (),
          jnp.full(B, 2, jnp.int32),
          KEYS,
          SearchOptions(2, BEGIN, END),
          samples=draws,
          sampling=SamplingOptions(**options),
        )
      )
    )()
  )
  options = {'temperature': 1.0, 'top_k': 0, 'top_p': 1.0, **options}
  first, second = (np.exp(slow_truncated(row, **options)) for row in places)
  for b in range(B):
    counts = np.zeros((N, N))
    np.add.at(counts, (result.tokens[b, :, 0], result.tokens[b, :, 1]), 1)
    wanted = draws * np.outer(first, second)
    possible = wanted > 1e-9
    assert not counts[~possible].any()
    # Chi-square: its mean is the degrees of freedom, its variance twice that.
    freedom = possible.sum() - 1
    statistic = np.sum((counts[possible] - wanted[possible]) ** 2 / wanted[possible])
    assert statistic < freedom + 4.0 * np.sqrt(2.0 * freedom)
  assert len({str(drawn(result, b)) for b in range(B)}) == B


def test_samples_are_a_function_of_the_keys():
  result = find(W, tables())
  chex.assert_trees_all_equal(find(W, tables()), result)
  others = find(
    W, tables(), keys=jax.random.split(jax.random.key(1, impl='threefry2x32'), B)
  )
  alike = find(W, np.broadcast_to(tables()[:1], tables().shape), (MAX_LENGTH,) * B)
  for b in range(B):
    assert len(drawn(result, b)) > 5 and drawn(others, b) != drawn(result, b)
  assert len({str(sorted(drawn(alike, b))) for b in range(B)}) == B


@pytest.mark.parametrize('options', [{}, NARROWER], ids=['whole', 'narrower'])
def test_a_sample_does_not_depend_on_other_samples_its_neighbors_or_its_row(options):
  table = tables(1)
  together, few = find(W, table, **options), find(2, table, **options)
  for b in range(B):
    assert drawn(few, b) <= drawn(together, b)
    alone = find(W, table, np.where(np.arange(B) == b, LIMITS, 0), **options)
    chex.assert_trees_all_equal(
      jax.tree.map(lambda x, b=b: x[b], alone),
      jax.tree.map(lambda x, b=b: x[b], together),
    )
  order = np.array([2, 0, 1])
  permuted = find(W, table[order], np.array(LIMITS)[order], KEYS[order], **options)
  chex.assert_trees_all_equal(permuted, jax.tree.map(lambda x: x[order], together))


def test_samples_are_sorted_padded_and_have_the_log_probabilities_of_the_step_function():
  limits = (7, 0, 5)
  for seed, options in ((0, {}), (1, NARROWER)):
    result = find(W, tables(seed), limits, **options)
    chex.assert_shape(result.tokens, (B, W, MAX_LENGTH))
    assert np.all(result.scores[:, :-1] >= result.scores[:, 1:])
    for b, w in np.ndindex(B, W):
      tokens, length = result.tokens[b, w].tolist(), result.lengths[b, w]
      assert length <= limits[b] and (length > 0) == (limits[b] > 0)
      assert set(tokens[length:]) <= {PAD} and END not in tokens[: max(length - 1, 0)]
      assert length in (0, limits[b]) or tokens[length - 1] == END
      log_prob = forced(tables(seed)[b], tokens[:length]) if length else -np.inf
      assert result.log_probs[b, w] == pytest.approx(log_prob, rel=1e-5)
      assert result.scores[b, w] == pytest.approx(
        log_prob / ((5 + length) / 6) ** 0.6, rel=1e-5
      )


@pytest.mark.long
@pytest.mark.parametrize('options', [{}, NARROWER], ids=['whole', 'narrower'])
def test_eager_jit_vmap_and_pmap_agree(options):
  table, limits = jnp.asarray(tables(2)), jnp.asarray(LIMITS, jnp.int32)
  search = searcher(2, **options)
  wanted = search(table, limits, KEYS)
  with jax.disable_jit():
    chex.assert_trees_all_close(search(table, limits, KEYS), wanted, rtol=1e-6)
  for lift in (jax.vmap, jax.pmap):
    rows = lift(lambda table, limit, key: search(table[None], limit[None], key[None]))(
      table, limits, KEYS
    )
    chex.assert_trees_all_close(
      jax.tree.map(lambda x: x[:, 0], rows), wanted, rtol=1e-6
    )


def test_sharding_does_not_change_the_samples():
  mesh = Mesh(np.array(jax.devices()[:B]), ('rows',))
  rows = NamedSharding(mesh, PartitionSpec('rows'))
  given = jax.device_put((tables(), np.array(LIMITS, np.int32), KEYS), rows)
  assert len(given[0].sharding.device_set) == B
  result = jax.device_get(searcher(W, **NARROWER)(*given))
  chex.assert_trees_all_equal(result, find(W, tables(), **NARROWER))
