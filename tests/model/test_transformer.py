"""The outputs of a sentence pair depend on its own source and past targets alone."""

import collections
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.model import formulas
from tests.model.conftest import B, D, H, N, S, T, V, W, build, pack, pair
from transformer.data.batch import BOS_ID
from transformer.model import layers, search_state
from transformer.model.transformer import Transformer
from transformer.ops import attention

VARIANTS = [{'norm': 'post'}, {'norm': 'pre', 'positions': 'learned'}]
UNTIED = {'share_embeddings': False, 'tie_output': False}
MODERN = {'norm': 'pre', 'rms_norm': True, 'activation': 'swiglu', 'query_key_norm': True,
          'positions': 'rotary', 'key_dim': 8}
RELATIVE = {'positions': 'relative', 'activation': 'gelu'}
MARIAN = {'activation': 'silu', 'attention_bias': 'all', 'output_bias': True}
variants = pytest.mark.parametrize('variant', VARIANTS, ids=['post', 'pre_learned'])
ALL_VARIANTS, IDS = [*VARIANTS, MODERN, RELATIVE, MARIAN], [
    'post', 'pre_learned', 'modern', 'relative', 'marian']
all_variants = pytest.mark.parametrize('variant', ALL_VARIANTS, ids=IDS)


def check_logits_of_figure_1(tiny, batch):
  """Compares the logits of every sentence pair with the formulas."""
  _, logits = tiny.forward(tiny.params, *batch)
  source, source_segments, _, inputs, target_segments, _ = batch
  for row, segment in itertools.product(range(B), (1, 2)):
    mine_S, mine_T = source_segments[row] == segment, target_segments[row] == segment
    wanted = formulas.transformer(tiny.model.config, formulas.exact(tiny.params),
                                  source[row, mine_S], inputs[row, mine_T])
    chex.assert_trees_all_close(logits[row, mine_T], np.float32(wanted), rtol=1e-4, atol=1e-4)


@pytest.mark.long(but=('post', 'untied'))
@pytest.mark.parametrize('variant', [*ALL_VARIANTS, UNTIED], ids=[*IDS, 'untied'])
def test_every_sentence_pair_gets_the_logits_of_figure_1(batch, variant):
  check_logits_of_figure_1(build(**variant), batch)


@pytest.mark.long(but=('post',))
@all_variants
def test_eager_jit_vmap_and_pmap_agree(batch, variant):
  tiny = build(**variant, num_layers=1)

  def apply(*batch):
    return tiny.model.apply({'params': tiny.params}, *batch)[0]

  jitted, _ = tiny.forward(tiny.params, *batch)
  chex.assert_shape(jitted, (B, T, D + tiny.model.config.output_bias))
  for lifted in (apply, jax.jit(jax.vmap(apply)), jax.pmap(apply)):
    chex.assert_trees_all_close(lifted(*batch), jitted, rtol=1e-4, atol=1e-5)


@pytest.mark.long(but=('post',))
@all_variants
def test_packing_and_the_amount_of_padding_change_nothing(variant):
  tiny = build(**variant)
  first, second = pair(5, 7, 0), pair(11, 13, 1)
  packed, _ = tiny.forward(tiny.params, *pack([[first, second], [second, first]]))
  alone, _ = tiny.forward(tiny.params, *pack([[first], [second]]))
  for got, wanted in ((packed[0, :7], alone[0, :7]), (packed[0, 7:20], alone[1, :13]),
                      (packed[1, :13], alone[1, :13]), (packed[1, 13:20], alone[0, :7])):
    chex.assert_trees_all_close(got, wanted, rtol=1e-4, atol=1e-5)
  tight, _ = tiny.forward(tiny.params, *pack([[first]], 5, 7))
  chex.assert_trees_all_close(tight[0], alone[0, :7], rtol=1e-4, atol=1e-5)


@pytest.mark.long(but=('post', 'modern'))
@all_variants
def test_other_segments_padding_and_neighbours_change_not_a_bit(batch, variant):
  tiny = build(**variant)
  before = tiny.forward(tiny.params, *batch)
  for row in range(B):
    for segment in (1, 2):
      mine_S, mine_T = (np.zeros_like(side, bool) for side in (batch[1], batch[4]))
      mine_S[row], mine_T[row] = batch[1][row] == segment, batch[4][row] == segment
      changed = [array.copy() for array in batch]
      for tokens, mine in ((changed[0], mine_S), (changed[3], mine_T)):
        tokens[~mine] = (tokens[~mine] + 11) % N
      after = tiny.forward(tiny.params, *changed)
      for old, new in zip(before, after, strict=True):
        chex.assert_trees_all_equal(old[mine_T], new[mine_T])
        others = (batch[4] > 0) & ~mine_T
        assert np.all(np.any(old[others] != new[others], axis=-1))


@pytest.mark.long(but=('post', 'relative'))
@all_variants
def test_future_targets_cannot_change_past_outputs(variant):
  tiny = build(**variant, **UNTIED, num_layers=1)
  inputs = np.arange(5, 5 + T)  # Distinct tokens, so a row of the table belongs to one position.
  given = pack([[(np.arange(4, 4 + S), [*inputs[1:], 4])]])
  places = given[3][0]
  assert len(set(places)) == T
  weights = jnp.asarray(np.random.default_rng(0).normal(size=D), jnp.float32)

  def outputs(table_ND):
    params = tiny.params | {'target_embedding': {'table': table_ND}}
    return tiny.model.apply({'params': params}, *given)[0][0, :, :D] @ weights

  jacobian_TND = jax.jit(jax.jacrev(outputs))(tiny.params['target_embedding']['table'])
  influence_TT = np.any(jacobian_TND[:, places], axis=-1)
  np.testing.assert_array_equal(influence_TT, np.tri(T, dtype=bool))


@variants
def test_permuting_the_source_with_its_positions_permutes_its_encoding(variant):
  tiny = build(**variant)
  rng = np.random.default_rng(0)
  tokens = rng.integers(4, N, (B, S)).astype(np.int32)
  positions = np.tile(np.arange(S, dtype=np.int32), (B, 1))
  segments = np.ones((B, S), np.int32)
  order = rng.permutation(S)
  encoded = tiny.encode(tiny.params, tokens, segments, positions)
  moved = tiny.encode(tiny.params, tokens[:, order], segments, positions[:, order])
  chex.assert_trees_all_close(moved, encoded[:, order], rtol=1e-4, atol=1e-5)
  in_place = tiny.encode(tiny.params, tokens[:, order], segments, positions)
  assert np.max(np.abs(in_place - encoded[:, order])) > 0.1


def decode_in_both_ways(tiny, steps):
  """Compares the logits of steps with a cache with those of whole forward passes."""
  sources = [pair(length, 1, length)[0] for length in (5, 17)]
  rng = np.random.default_rng(0)

  def apply(*given, method):
    return tiny.model.apply({'params': tiny.params}, *given, method=method)

  def teacher_forced(inputs_BWT):
    """Returns the logits after every input, and the packed sources."""
    given = pack([[(sources[b], np.zeros(T, np.int32))] for b in range(B) for _ in range(W)])
    given = (*given[:3], inputs_BWT.reshape(B * W, T), *given[4:])
    return tiny.forward(tiny.params, *given)[1].reshape(B, W, T, N), [x[::W] for x in given[:3]]

  inputs_BWT = np.full((B, W, T), BOS_ID)
  _, encoder_side = teacher_forced(inputs_BWT)
  source, state = jax.jit(lambda *given: apply(*given, W, method='start'))(*encoder_side)
  source, state = search_state.arrays((source, search_state.grown(state, T)))
  key_dim = tiny.model.config.head_key_dim
  chex.assert_shape([layer.keys for layer in state.caches], (B, H, key_dim, T * W))
  chex.assert_shape([layer.values for layer in state.caches], (B, H, T * W, V))
  step = jax.jit(lambda *given: apply(*given, method='step'))
  for index in range(steps):
    # Like a search, this drops some hypotheses and continues others more than once.
    origin_BW1 = rng.integers(0, W, (B, W, 1))
    inputs_BWT = np.take_along_axis(inputs_BWT, origin_BW1, axis=1)
    state = state._replace(lineage_BWT=jnp.take_along_axis(
        state.lineage_BWT, jnp.asarray(origin_BW1), axis=1))
    if index:
      inputs_BWT[:, :, index] = rng.integers(4, N, (B, W))
    logits_BWN, state = step(inputs_BWT[:, :, index], jnp.int32(index), state, source)
    wanted_BWTN, _ = teacher_forced(inputs_BWT)
    chex.assert_trees_all_close(logits_BWN, wanted_BWTN[:, :, index], rtol=1e-3, atol=1e-4)


@pytest.mark.long(but=('post',))
@all_variants
def test_cached_decoding_is_teacher_forcing_for_any_lineage(variant):
  decode_in_both_ways(build(**variant), T)


@pytest.mark.parametrize('positions', ['learned', 'rotary', 'relative'])
def test_other_positions_are_their_formulas_and_those_of_cached_steps(batch, positions):
  tiny = build(positions=positions, norm='pre', key_dim=8, num_layers=1)
  check_logits_of_figure_1(tiny, batch)
  decode_in_both_ways(tiny, steps=4)


def test_dropout_depends_on_its_key_alone_and_only_when_asked_for(batch):
  tiny = build(num_layers=1)

  @jax.jit
  def noisy(key, params):
    return tiny.model.apply({'params': params}, *batch, deterministic=False,
                            rngs={'dropout': key})[0]

  first, second = (jax.random.key(seed) for seed in (1, 2))
  chex.assert_trees_all_equal(noisy(first, tiny.params), noisy(first, tiny.params))
  real = batch[4] > 0
  assert np.all(np.any(noisy(first, tiny.params) != noisy(second, tiny.params), axis=-1)[real])
  calm = jax.jit(lambda key: tiny.model.apply(
      {'params': tiny.params}, *batch, deterministic=True, rngs={'dropout': key})[0])
  chex.assert_trees_all_equal(calm(first), calm(second))
  assert np.all(np.any(np.abs(noisy(first, tiny.params) - calm(first)) > 0.01, axis=-1)[real])


def test_dropout_is_on_every_sublayer_and_embedding_each_with_a_key_of_its_own(
    batch, monkeypatch):
  rest = {'attention_dropout': 0.1, 'activation_dropout': 0.2}
  tiny = build(**rest)
  keys, rates = [], collections.Counter()

  def record(key, x, rate):
    keys.append(jax.random.key_data(key).tolist())
    rates[rate] += 1
    return x

  monkeypatch.setattr(layers, 'dropout', record)
  monkeypatch.setattr(attention, 'drop', record)
  tiny.model.apply({'params': tiny.params}, *batch, deterministic=False,
                   rngs={'dropout': jax.random.key(0)})
  # Two layers in each stack; the decoder's have two attentions.
  assert rates == {0.3: 2 + 2 * 2 + 2 * 3, 0.1: 2 * 1 + 2 * 2, 0.2: 2 + 2}
  assert len({tuple(key) for key in keys}) == len(keys)


def test_each_language_may_have_a_vocabulary_of_its_own_size(batch):
  shared = build(share_embeddings=False, num_layers=1)
  model = Transformer(shared.model.config, N, source_vocabulary_size=N + 6)
  new = np.random.default_rng(0).normal(size=(6, D)).astype(np.float32)
  table = jnp.concatenate([shared.params['source_embedding']['table'], new])
  forward = jax.jit(lambda table, tokens: model.apply(
      {'params': shared.params | {'source_embedding': {'table': table}}}, tokens, *batch[1:])[0])
  # The additional rows change nothing until their tokens occur, and each has its own meaning.
  decoded, _ = shared.forward(shared.params, *batch)
  chex.assert_trees_all_close(forward(table, batch[0]), decoded, rtol=1e-5, atol=1e-5)
  last, before = (forward(table, jnp.asarray(batch[0]).at[0, 0].set(token))
                  for token in (N + 5, N + 4))
  assert not np.allclose(last[0], before[0], atol=1e-3)


@pytest.mark.long(but=('float32',))
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_a_row_of_padding_has_finite_outputs_and_gradients(dtype):
  tiny = build(dtype=dtype, num_layers=1)
  given = pack([[pair(5, 7, 0)], []])

  def total(params):
    x, _ = tiny.model.apply({'params': params}, *given)
    return jnp.sum(x.astype(jnp.float32) ** 2 * jnp.asarray(given[4] > 0)[..., None])

  value, gradient = jax.jit(jax.value_and_grad(total))(tiny.params)
  chex.assert_tree_all_finite((value, gradient))
  assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype('float32')}
