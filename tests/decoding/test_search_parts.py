"""A search in parts: sentences may change their places and their neighbours between the parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.data.batch import EOS_ID, PAD_ID
from transformer.decoding import prefixes
from transformer.decoding.batch_search import BatchSearch
from transformer.decoding.config import DecodeConfig
from transformer.decoding.constraint import Constraint
from transformer.decoding.pool import Part
from transformer.decoding.search_parts import SearchParts
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.training.step import init_params

B, S, N, LONGEST = 5, 11, 23, 29
CONFIG = DecodeConfig(beam_size=3, max_extra_length=13, batch_size=B)
MODEL = Transformer(ModelConfig(num_layers=2, model_dim=14, ff_dim=22, num_heads=2, norm='pre'), N)


@pytest.fixture(name='params', scope='module')
def fixture_params():
  return jax.tree.map(lambda leaf: 2.0 * leaf, jax.jit(lambda: init_params(MODEL, 5))())


@pytest.fixture(name='parts', scope='module')
def fixture_parts():
  return SearchParts(BatchSearch(MODEL, CONFIG, 3), '', LONGEST)


def sources(seed):
  rng = np.random.default_rng(seed)
  source_BS = rng.integers(EOS_ID + 1, N, (B, S)).astype(np.int32)
  for row, length in enumerate(rng.integers(2, S, B)):
    source_BS[row, length:] = EOS_ID, *[PAD_ID] * (S - length - 1)
  return source_BS, np.arange(B, dtype=np.int32) + S + 8


def begin(parts, params, seed, rows=slice(None)):
  source_BS, limits_B = (array[rows] for array in sources(seed))
  given, state = parts.begin(params, source_BS, (limits_B, None, None), ())
  return Part('kind', 0, range(B), given, state)


def finish(parts, params, part, stop=None):
  """Returns the part after `stop` tokens, or the hypotheses at the end."""
  _, t, _, given, state = part
  while t != stop:
    state = parts.with_room(params, given, state, (), t)
    t = parts.next_stop(t, LONGEST)
    state, done_B, found = parts.advance(params, given, state, (), t)
    if np.all(done_B):
      return jax.device_get(found)
  return Part(part.kind, t, part.chosen, given, state)


def test_stops_are_at_most_at_the_end_of_each_length_of_the_cache(parts):
  assert parts.room(LONGEST) == 42
  stops = [0]
  while stops[-1] < 42:
    stops.append(parts.next_stop(stops[-1], LONGEST))
  assert stops == [0, 8, 12, 16, 20, 24, 28, 32, 36, 40, 42]
  assert [parts.decoded_length(length) for length in (3, 16, 29)] == [29, 29, 29]


def test_the_parts_find_what_the_whole_finds(parts, params):
  found = finish(parts, params, begin(parts, params, 0))
  wanted = jax.jit(BatchSearch(MODEL, CONFIG, 3))(params, *sources(0))
  for mine, whole in zip(found, wanted, strict=True):
    places = slice(whole.shape[-1]) if whole.ndim == 3 else slice(None)
    np.testing.assert_allclose(mine[..., places], whole, rtol=1e-5)
  assert found.lengths.max() > 16


@pytest.mark.parametrize('stop', [8, 16])
def test_a_sentence_may_change_its_place_and_its_neighbours(parts, params, stop):
  one, other = (finish(parts, params, begin(parts, params, seed), stop) for seed in (0, 1))
  alone = finish(parts, params, one.with_rows(range(B), range(B)))
  rows = [3, 1, 0]
  mixed = [one.with_rows(rows, rows), other.with_rows([4, 2], [4, 2])]
  joined = Part('kind', stop, range(B), *jax.tree.map(
      lambda *leaves: np.concatenate(leaves) if leaves[0].ndim else leaves[0],
      *[(part.sources, part.state) for part in mixed]))
  found = finish(parts, params, joined)
  for mine, wanted in zip(found, alone, strict=True):
    np.testing.assert_array_equal(mine[:3], wanted[rows])


class Prefixed(Constraint):
  """Some begin with a prefix; the tables have the tokens that never come."""

  @staticmethod
  def allow(rows, tables, t, last_BW, state, log_probs_BWN):
    return prefixes.begin(rows, t, log_probs_BWN, jnp.where(tables[None, None], -jnp.inf,
                                                      log_probs_BWN)), state


def test_rows_and_tables_of_a_constraint_belong_to_its_sentences(params):
  parts = SearchParts(BatchSearch(MODEL, CONFIG, 3, Prefixed), '', LONGEST)
  source_BS, limits_B = sources(2)
  prefix_BP = np.full((B, 9), PAD_ID, np.int32)
  prefix_BP[1, :3] = 9, 7, 8
  forbidden_N = np.arange(N) == 11
  given, state = parts.begin(params, source_BS, (limits_B, None, prefix_BP), forbidden_N)
  state, _, found = parts.advance(params, given, state, forbidden_N, 8)
  assert found.tokens[1, 0, :3].tolist() == [9, 7, 8] or found.lengths[1, 0] == 0
  assert not np.any(found.tokens == 11)
