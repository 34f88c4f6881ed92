"""A search in parts: sentences may change their places and their neighbours between the parts."""

import jax
import numpy as np
import pytest

from tests.toy_translation import whole_search
from transformer.data.batch import EOS_ID, PAD_ID
from transformer.decoding.config import DecodeConfig
from transformer.decoding.model_search import ModelSearch
from transformer.decoding.search_programs import SearchPrograms
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.training.mesh import replicated, sentence_mesh
from transformer.training.step import init_params

B, S, N, LONGEST = 5, 11, 23, 29
CONFIG = DecodeConfig(beam_size=3, max_extra_length=13, batch_size=B)
MODEL = Transformer(ModelConfig(num_layers=1, model_dim=14, ff_dim=22, num_heads=2, norm='pre'), N)


@pytest.fixture(scope='module')
def params():
  return jax.tree.map(lambda leaf: 2.0 * leaf, jax.jit(lambda: init_params(MODEL, 5))())


@pytest.fixture(scope='module')
def programs():
  return make_programs()


def make_programs():
  return SearchPrograms(ModelSearch([MODEL], CONFIG, 3), LONGEST, replicated(sentence_mesh(1)))


def sources(seed):
  rng = np.random.default_rng(seed)
  source_BS = rng.integers(EOS_ID + 1, N, (B, S)).astype(np.int32)
  for row, length in enumerate(rng.integers(2, S, B)):
    source_BS[row, length:] = EOS_ID, *[PAD_ID] * (S - length - 1)
  return source_BS, np.arange(B, dtype=np.int32) + S + 8


def begin(programs, params, seed):
  source_BS, limits_B = sources(seed)
  return 0, programs.begin([params], (), source_BS, (limits_B, None, None))


def finish(programs, params, begun, stop=None, pauses=True):
  """Returns t and the state after `stop` tokens, or the hypotheses and all stops at the end."""
  (t, state), stops = begun, []
  while t != stop:
    state, t, done_B, result = programs.advance([params], (), state, t, pauses)
    stops.append(t)
    if np.all(done_B):
      return jax.device_get(result), stops
  return t, jax.device_get(state)


@pytest.mark.parametrize(('pauses', 'wanted_stops'), [
    (True, [8, 12, 16, 20, 24, 28, 32, 36, 40, 42]), (False, [16, 42])])
def test_the_parts_find_what_the_whole_finds(programs, params, pauses, wanted_stops):
  result, stops = finish(programs, params, begin(programs, params, 0), pauses=pauses)
  wanted = whole_search(MODEL, CONFIG, 3)(params, *sources(0))
  for mine, whole in zip(result, wanted, strict=True):
    places = slice(whole.shape[-1]) if whole.ndim == 3 else slice(None)
    np.testing.assert_allclose(mine[..., places], whole, rtol=1e-5)
  assert result.lengths.max() > 16
  assert stops == wanted_stops[:len(stops)]


@pytest.mark.long(but=('16',))
@pytest.mark.parametrize('stop', [8, 16])
def test_a_sentence_may_change_its_place_and_its_neighbours(programs, params, stop):
  (_, one), (_, other) = (finish(programs, params, begin(programs, params, seed), stop)
                          for seed in (0, 1))
  alone, _ = finish(programs, params, (stop, one))
  rows = [3, 1, 0]
  result, _ = finish(programs, params, (stop, jax.tree.map(
      lambda mine, others: np.concatenate([mine[rows], others[[4, 2]]]) if mine.ndim else mine,
      one, other)))
  for mine, wanted in zip(result, alone, strict=True):
    np.testing.assert_array_equal(mine[:3], wanted[rows])
