"""Allocated beams find what brute force finds among the sequences that contain the phrases."""

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
  BEGIN,
  END,
  LIMITS,
  MAX_LENGTH,
  B,
  N,
  contains,
  forced,
  tables,
  toy,
  words,
)
from transformer.decoding.constraint import apply_constraint
from transformer.ops.beam_search import beam_search
from transformer.ops.search import PAD, SearchOptions, run_search
from transformer.tools.constrain.beam_allocation import allocate_beams
from transformer.tools.constrain.lexical_constraint import LexicalConstraint
from transformer.tools.constrain.phrases import build_matcher

ALPHA = 0.6
CONTINUES = np.arange(N) == 4
WIDE = 1280  # The number of all extensions of all prefixes of four tokens.
NOTHING = ((), ()), ((), ()), ((), ())
# The phrases of the third input may overlap.
PHRASES = ((3, 4), ()), ((3,), (1,)), ((1, 3), (3, 3))


def padded(phrases, length=2):
  return np.asarray(
    [
      [(*phrase, *[PAD] * (length - len(phrase))) for phrase in item]
      for item in phrases
    ],
    np.int32,
  )


@functools.cache
def searcher(width, max_length=MAX_LENGTH, nbest=1, constrained=True, grows=False):
  """Returns a compiled (tables, limits, phrases) -> `Hypotheses`."""

  def search(table_BXN, limits_B, tokens_BJL):
    tables, rows = (None, jnp.asarray(CONTINUES)), (None, tokens_BJL)
    step, cache, options = toy(
      table_BXN, len(limits_B), width, max_length=max_length, alpha=ALPHA, grows=grows
    )
    step, cache = apply_constraint(
      LexicalConstraint, rows, tables, step, cache, (len(limits_B), width)
    )
    return run_search(
      beam_search(
        step,
        cache,
        limits_B,
        options,
        beam_size=width,
        nbest=nbest,
        policy=LexicalConstraint.policy(rows, tables, width) if constrained else None,
      )
    )

  return jax.jit(search)


def find(width, table, phrases=PHRASES, limits=LIMITS, **kinds):
  # At least two, so that most phrases share a program.
  length = max(2, *(len(phrase) for item in phrases for phrase in item))
  return jax.device_get(
    searcher(width, **kinds)(
      table, jnp.asarray(limits, jnp.int32), padded(phrases, length)
    )
  )


@pytest.mark.parametrize('grows', [False, True])
def test_a_wide_beam_matches_brute_force_over_outputs_with_the_phrases(grows):
  limits, others = (5, 4, 5), [token for token in range(N) if token != END]
  for seed in range(2):
    result = find(WIDE, tables(seed), limits=limits, max_length=5, nbest=5, grows=grows)
    for b, limit in enumerate(limits):
      best = sorted(
        (
          (forced(tables(seed)[b], tokens) / ((5 + n) / 6) ** ALPHA, tokens)
          for n in range(1, limit + 1)
          for begun in itertools.product(others, repeat=n - 1)
          for tokens in [(*begun, END)]
          if contains(tokens, PHRASES[b], CONTINUES)
        ),
        reverse=True,
      )
      assert len(best) > 0
      for w, (score, tokens) in enumerate(best[:5]):
        assert words(result, b, w) == tokens
        assert result.scores[b, w] == pytest.approx(score, rel=1e-5)


@pytest.mark.parametrize(('width', 'nbest'), [(1, 1), (2, 2), (3, 1), (7, 3)])
def test_without_phrases_it_is_beam_search_bit_for_bit(width, nbest):
  for seed in range(7):
    table = tables(seed).copy()
    table[1] = np.round(table[1])  # Equal numbers keep the same order.
    table[2] = np.where(np.arange(N) == END, np.float32(-100), table[2])  # None ends.
    plain = find(width, table, NOTHING, nbest=nbest, constrained=False)
    chex.assert_trees_all_equal(find(width, table, NOTHING, nbest=nbest), plain)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_finished_hypotheses_contain_the_phrases_with_any_beam(seed, width):
  rng = np.random.default_rng(seed)
  phrases = tuple(
    tuple(
      tuple(rng.choice([1, 3, 4, 4], rng.integers(0, 3)).tolist()) for _ in range(2)
    )
    for _ in range(B)
  )
  phrases = tuple((one, () if other == one else other) for one, other in phrases)
  table = tables(seed)
  result = find(width, table, phrases, (7, 7, 7))
  for b, w in np.ndindex(*result.lengths.shape):
    tokens = words(result, b, w)
    if tokens and tokens[-1] == END:
      assert contains(tokens, phrases[b], CONTINUES), (phrases[b], tokens)
      assert result.log_probs[b, w] == pytest.approx(forced(table[b], tokens), rel=1e-5)
  assert result.lengths[:, 0].all()


def test_an_input_does_not_depend_on_its_neighbors():
  table, limits = tables(1), (7, 6, 5)
  together = find(3, table, limits=limits)
  for b in range(B):
    alone = find(3, table, limits=np.where(np.arange(B) == b, limits, 0))
    chex.assert_trees_all_equal(
      jax.tree.map(lambda x, b=b: x[b], alone),
      jax.tree.map(lambda x, b=b: x[b], together),
    )
  order = np.array([2, 0, 1])
  permuted = find(3, table[order], [PHRASES[b] for b in order], np.array(limits)[order])
  chex.assert_trees_all_equal(permuted, jax.tree.map(lambda x: x[order], together))


def test_where_the_limit_is_too_small_those_with_most_tokens_are_the_result():
  for seed in range(5):
    result = find(5, tables(seed), [[(3, 1, 3, 3)]] * 3, (3, 4, 5))
    for b in range(2):  # The second has no position for EOS.
      assert (
        words(result, b, 0) == (3, 1, 3, 3)[: 3 + b] and not result.lengths[b, 1:].any()
      )
    assert contains(words(result, 2, 0), [(3, 1, 3, 3)], CONTINUES)


def scripted(probabilities, phrases, beam_size, continues=()):
  """Returns the best tokens where probabilities depend only on the position, a row for each."""

  def step(tokens_BW, t, cache):
    row = jnp.log(jnp.asarray(probabilities, jnp.float32))[t]
    return jnp.broadcast_to(row, (*tokens_BW.shape, row.size)), cache

  length, tokens = len(probabilities), padded([phrases])
  continues_N = np.isin(np.arange(len(probabilities[0])), continues)
  options = SearchOptions(length, BEGIN, END, 0.0)
  policy = allocate_beams(build_matcher(tokens, continues_N), beam_size)
  return words(
    jax.device_get(
      run_search(
        beam_search(
          step,
          (),
          jnp.asarray([length]),
          options,
          beam_size=beam_size,
          policy=policy,
        )
      )
    ),
    0,
    0,
  )


# Columns: pad, begin, end, and words from 3 on.
def test_a_phrase_stays_complete_if_a_longer_word_is_likelier():
  result = scripted([[0, 0, 0, 0.02, 0.5, 0.45, 0.03]] * 4, [(3,)], 1, continues=(4, 5))
  assert contains(result, [(3,)], np.isin(np.arange(7), (4, 5))), result


def test_a_token_that_begins_several_phrases_does_not_hold_the_search_up():
  phrases = [(3, 4), (3, 5), (3, 6)]
  result = scripted([[0, 0, 0, 0.97, 0.01, 0.01, 0.01]] * 7, phrases, 1)
  assert contains(result, phrases, np.zeros(7, bool)), result


def test_a_likely_unfinished_hypothesis_may_still_overtake_a_finished_one():
  places = [
    [0, 0, 0, 0.1, 0.9],
    [0, 0, 0.5, 0.01, 0.49],
    [0, 0, 0.01, 0.9, 0.09],
    [0, 0, 1, 0, 0],
  ]
  # After two tokens, (3, END) has 0.05, (3, 4) 0.049, and (4, 4) 0.441.
  assert scripted(places, [(3,)], 4) == (4, 4, 3, END)
