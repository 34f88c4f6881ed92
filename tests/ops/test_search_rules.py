"""Beam search on scripted probabilities: when a hypothesis ends, and when the search ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ops.toy_language import BEGIN, END, words
from transformer.ops.beam_search import beam_search
from transformer.ops.search import Cache, SearchOptions, run_search


def scripted(probabilities, beam_size, limits, alpha):
  """Searches with probabilities that depend on the position alone: one row for each position."""
  def step(tokens_BW, cache):
    row = jnp.log(jnp.asarray(probabilities, jnp.float32))[cache.common]
    return jnp.broadcast_to(row, (*tokens_BW.shape, row.size)), Cache((), cache.common + 1)
  return jax.device_get(run_search(beam_search(
      step, Cache((), jnp.int32(0)), jnp.asarray(limits, jnp.int32),
      SearchOptions(len(probabilities), BEGIN, END, alpha), beam_size=beam_size)))


# Columns: pad, begin, end, and two words, 3 and 4.
def test_a_hypothesis_ends_only_where_its_end_is_among_the_best_w():
  places = [[0.0, 0.0, 0.2, 0.5, 0.3], [0.0, 0.0, 0.3, 0.36, 0.34]]
  third = scripted(places, 2, [2], alpha=0.0)
  assert [words(third, 0, w) for w in range(2)] == [(3, 3), (3, 4)]
  among = scripted(places, 3, [2], alpha=0.0)
  assert words(among, 0, 0) == (END,)
  assert among.log_probs[0, 0] == pytest.approx(np.log(0.2))


def test_a_live_hypothesis_may_overtake_an_ended_one_if_its_limit_lets_it():
  sure = [0.0, 0.0, 0.005, 0.99, 0.005]
  places = [[0.0, 0.0, 0.5, 0.4, 0.1], *[sure] * 5, [0.0, 0.0, 0.99, 0.005, 0.005]]
  long = (3,) * 6 + (END,)
  log_prob = np.log(0.4) + 6 * np.log(0.99)
  result = scripted(places, 2, [7, 2], alpha=1.0)
  # After one token the ended one leads, ln 0.5 > ln 0.4. With seven tokens the penalty is 2, and
  # ln 0.4 / 2 > ln 0.5.
  assert words(result, 0, 0) == long
  assert result.scores[0, 0] == pytest.approx(log_prob / 2, rel=1e-5)
  assert words(result, 0, 1) == (END,)
  # With two tokens the penalty is at most 7 / 6, and with alpha 0 it is 1.
  assert words(result, 1, 0) == (END,)
  assert result.lengths[1].tolist() == [1, 0]
  assert scripted(places, 2, [7, 2], alpha=0.0).lengths.tolist() == [[1, 0], [1, 0]]


def test_search_ends_once_w_hypotheses_have_ended():
  places = [[0.0, 0.0, 0.3, 0.6, 0.1], [0.0, 0.0, 0.4, 0.59, 0.01], *[[0, 0, 0.001, 0.999, 0]] * 4,
            [0.0, 0.0, 1.0, 0.0, 0.0]]
  result = scripted(places, 2, [7], alpha=1.5)
  # A longer one, with the score ln 0.35 / 2^1.5, would have been the best.
  assert sorted(words(result, 0, w) for w in range(2)) == [(END,), (3, END)]
  # Nor does a live one that can only tie prolong the search.
  level = [[0.0, 0.0, 0.4, 0.4, 0.2], [0.0, 0.0, 1.0, 0.0, 0.0]]
  assert scripted(level, 2, [2], alpha=0.0).lengths.tolist() == [[1, 0]]


def test_a_cache_of_another_type_is_refused():
  with pytest.raises(ValueError, match=r'must be a Cache, Cache\(\(\), \(\)\) if .*; got dict'):
    beam_search(lambda last_BW, cache: (last_BW, cache), {}, jnp.int32([4]),
                SearchOptions(4, BEGIN, END), beam_size=3)
