"""A search in parts finds what a whole one finds."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.toy_translation import ROUNDING, whole_search
from transformer.data.batch import EOS_ID, PAD_ID
from transformer.decoding.config import DecodeOptions
from transformer.decoding.decoder_search import DecoderSearch, SearchInputs
from transformer.decoding.search_programs import SearchPrograms, encoded_length
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.training.mesh import replicated, sentence_mesh

B, S, N, LONGEST = 5, 11, 23, 29
CONFIG = DecodeOptions(beam_size=3, nbest=3, max_extra_length=13, batch_size=B)
MODEL = Transformer(
  ModelConfig(num_layers=1, model_dim=14, ff_dim=22, num_heads=2, norm_position='pre'),
  N,
)


def sources():
  rng = np.random.default_rng(0)
  source_BS = rng.integers(EOS_ID + 1, N, (B, S)).astype(np.int32)
  for row, length in enumerate(rng.integers(2, S, B)):
    source_BS[row, length:] = EOS_ID, *[PAD_ID] * (S - length - 1)
  return source_BS, np.arange(B, dtype=np.int32) + S + 8


@pytest.mark.long(but=('True',))
@pytest.mark.parametrize(
  ('pause_for_refill', 'wanted_stops'),
  [(True, [8, 12, 16, 20, 24, 28, 32, 36, 40, 42]), (False, [16, 42])],
  ids=['True', 'False'],
)
def test_the_parts_find_what_the_whole_finds(pause_for_refill, wanted_stops):
  params = jax.jit(lambda: init_params(MODEL, 5))()
  programs = SearchPrograms(
    DecoderSearch([MODEL], CONFIG), LONGEST, replicated(sentence_mesh(1))
  )
  source_BS, limits_B = sources()
  state = programs.begin([params], (), SearchInputs(source_BS, limits_B))
  length = encoded_length(S, LONGEST)
  t, done_B, stops = 0, False, []
  while not np.all(done_B):
    state, t, done_B, result = programs.advance(
      [params], (), state, length, t, pause_for_refill
    )
    stops.append(t)
  wanted = whole_search(MODEL, CONFIG)(params, source_BS, limits_B)
  for mine, whole in zip(jax.device_get(result), wanted, strict=True):
    places = slice(whole.shape[-1]) if whole.ndim == 3 else slice(None)
    np.testing.assert_allclose(mine[..., places], whole, rtol=0, atol=ROUNDING)
  assert result.lengths.max() > 16
  assert stops == wanted_stops[: len(stops)]


@pytest.mark.parametrize(('nbest', 'lengths'), [(1, [1, 0, 0]), (3, [1, 2, 2])])
def test_an_nbest_search_continues_until_no_hypothesis_can_enter_the_list(
  nbest, lengths
):
  # EOS has half of the probability, two others the rest, whatever came before.
  log_probs_N = jnp.log(
    jnp.zeros(5).at[jnp.array([EOS_ID, 3, 4])].set(jnp.array([0.5, 0.3, 0.2]))
  )

  def apply(params, *given, method):
    if method == 'start':
      return (), ()
    tokens_BW, *_ = given
    return jnp.broadcast_to(log_probs_N, (*tokens_BW.shape, 5)), ()

  model = types.SimpleNamespace(apply=apply)
  found = whole_search(model, DecodeOptions(beam_size=3, alpha=0.0, nbest=nbest))(
    (), np.full((1, 4), EOS_ID, np.int32), np.array([9], np.int32)
  )
  assert found.lengths.tolist() == [lengths]


def equations(jaxpr):
  """Yields the equations of a traced function and of its inner functions."""
  for equation in jaxpr.eqns:
    yield equation
    for leaf in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, 'eqns')):
      if hasattr(leaf, 'eqns'):
        yield from equations(leaf)


@pytest.mark.parametrize('beams', [1, 3])
def test_a_search_in_16_bits_converts_no_matrix_at_every_step(beams):
  params = jax.eval_shape(lambda: init_params(MODEL, 5))
  matrices = {leaf.shape for leaf in jax.tree.leaves(params) if leaf.ndim > 1}
  search = whole_search(MODEL, DecodeOptions(beam_size=beams, dtype='bfloat16'))
  traced = jax.make_jaxpr(search)(params, *sources())
  loops = [each for each in equations(traced) if each.primitive.name == 'while']
  assert loops
  for loop in loops:
    for each in equations(loop.params['body_jaxpr']):
      if each.primitive.name == 'convert_element_type':
        assert each.invars[0].aval.shape not in matrices
