"""The Transformer computes the formulas; tests/testing/ checks the properties of every model."""

import collections
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.model import formulas
from tests.model.conftest import B, D, N, S, T, build
from transformer.model import layers
from transformer.model.transformer import Transformer
from transformer.ops import attention

VARIANTS = [{'norm_position': 'post'}, {'norm_position': 'pre', 'positions': 'learned'}]
UNTIED = {'share_embeddings': False, 'tie_output': False}
MODERN = {
  'norm_position': 'pre',
  'rms_norm': True,
  'activation': 'swiglu',
  'query_key_norm': True,
  'positions': 'rotary',
  'key_dim': 8,
}
RELATIVE = {'positions': 'relative', 'activation': 'gelu'}
MARIAN = {'activation': 'silu', 'attention_bias': 'all', 'output_bias': True}
variants = pytest.mark.parametrize('variant', VARIANTS, ids=['post', 'pre_learned'])
ALL_VARIANTS, IDS = (
  [*VARIANTS, MODERN, RELATIVE, MARIAN],
  ['post', 'pre_learned', 'modern', 'relative', 'marian'],
)
all_variants = pytest.mark.parametrize('variant', ALL_VARIANTS, ids=IDS)


def check_logits_of_figure_1(tiny, batch):
  """Compares the logits of every sentence pair with the formulas."""
  _, logits = tiny.forward(tiny.params, *batch)
  source, source_segments, _, inputs, target_segments, _ = batch
  for row, segment in itertools.product(range(B), (1, 2)):
    mine_S, mine_T = source_segments[row] == segment, target_segments[row] == segment
    wanted = formulas.transformer(
      tiny.model.config,
      formulas.exact(tiny.params),
      source[row, mine_S],
      inputs[row, mine_T],
    )
    chex.assert_trees_all_close(
      logits[row, mine_T], np.float32(wanted), rtol=1e-4, atol=1e-4
    )


@pytest.mark.long(but=('post', 'untied'))
@pytest.mark.parametrize('variant', [*ALL_VARIANTS, UNTIED], ids=[*IDS, 'untied'])
def test_every_sentence_pair_gets_the_logits_of_figure_1(batch, variant):
  check_logits_of_figure_1(build(**variant), batch)


@pytest.mark.long(but=('post',))
@all_variants
def test_rows_without_a_batch_and_rows_on_several_devices_agree(batch, variant):
  tiny = build(**variant, num_layers=1)

  def apply(*batch):
    return tiny.model.apply({'params': tiny.params}, *batch)[0]

  jitted, _ = tiny.forward(tiny.params, *batch)
  chex.assert_shape(jitted, (B, T, D + tiny.model.config.output_bias))
  for lifted in (jax.jit(jax.vmap(apply)), jax.pmap(apply)):
    chex.assert_trees_all_close(lifted(*batch), jitted, rtol=1e-4, atol=1e-5)


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


@pytest.mark.parametrize('positions', ['learned', 'rotary', 'relative'])
def test_other_positions_are_their_formulas(batch, positions):
  check_logits_of_figure_1(
    build(positions=positions, norm_position='pre', key_dim=8, num_layers=1), batch
  )


def test_every_sublayer_and_embedding_has_dropout_with_a_separate_key(
  batch, monkeypatch
):
  rest = {'attention_dropout': 0.1, 'activation_dropout': 0.2}
  tiny = build(**rest)
  keys, rates = [], collections.Counter()

  def record(key, x, rate):
    keys.append(jax.random.key_data(key).tolist())
    rates[rate] += 1
    return x

  monkeypatch.setattr(layers, 'dropout', record)
  monkeypatch.setattr(attention, 'drop', record)
  tiny.model.apply(
    {'params': tiny.params},
    *batch,
    deterministic=False,
    rngs={'dropout': jax.random.key(0)},
  )
  # Two layers in each stack; the decoder's have two attentions.
  assert rates == {0.3: 2 + 2 * 2 + 2 * 3, 0.1: 2 * 1 + 2 * 2, 0.2: 2 + 2}
  assert len({tuple(key) for key in keys}) == len(keys)


def test_each_language_may_have_a_different_vocabulary_size(batch):
  shared = build(share_embeddings=False, num_layers=1)
  model = Transformer(shared.model.config, N, source_vocabulary_size=N + 6)
  new = np.random.default_rng(0).normal(size=(6, D)).astype(np.float32)
  table = jnp.concatenate([shared.params['source_embedding']['table'], new])
  forward = jax.jit(
    lambda table, tokens: model.apply(
      {'params': shared.params | {'source_embedding': {'table': table}}},
      tokens,
      *batch[1:],
    )[0]
  )
  # The additional rows change nothing until their tokens occur, and each has its own meaning.
  decoded, _ = shared.forward(shared.params, *batch)
  chex.assert_trees_all_close(forward(table, batch[0]), decoded, rtol=1e-5, atol=1e-5)
  last, before = (
    forward(table, jnp.asarray(batch[0]).at[0, 0].set(token))
    for token in (N + 5, N + 4)
  )
  assert not np.allclose(last[0], before[0], atol=1e-3)
