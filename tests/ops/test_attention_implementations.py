"""Attention in parts, from a cache or by the fused kernel equals the reference."""

import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ops.attention_arrays import EMPTY, H, K, S, T, arrays
from transformer.ops import attention
from transformer.ops.attention import (
  AttentionDropout,
  attention_with_weights,
  cached_attention,
  dot_product_attention,
)
from transformer.ops.fused_attention import fused_attention, missing_for_fused_attention


@pytest.mark.long(but=('2',))
@pytest.mark.parametrize('at_once', [1, 2, 3, 4])
def test_taking_the_queries_in_parts_changes_nothing(monkeypatch, at_once):
  *given, mask = arrays((2, 3) if at_once == 3 else (3,))
  for item in (mask, None):

    def run(q, k, v, item=item):
      return jax.value_and_grad(
        lambda *qkv: jnp.sum(jnp.sin(dot_product_attention(*qkv, item))), (0, 1, 2)
      )(q, k, v)

    monkeypatch.setattr(attention, '_QUERIES_AT_ONCE', T)
    wanted = dot_product_attention(*given, item), jax.jit(run)(*given)
    monkeypatch.setattr(attention, '_QUERIES_AT_ONCE', at_once)
    got = (
      dot_product_attention(*given, item),
      jax.jit(lambda *qkv, run=run: run(*qkv))(*given),
    )
    chex.assert_trees_all_close(got, wanted, rtol=1e-5, atol=1e-6)


def test_memory_of_the_gradient_is_linear_in_the_length():
  def kept(length):
    x = jnp.zeros((length, 2, 8))
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(dot_product_attention(x, x, x) ** 2)))
    return gradient.lower(x).compile().memory_analysis().temp_size_in_bytes

  assert kept(4096) < 3 * kept(2048)
  # All weights at once would take heads · T² · 4 bytes.
  assert kept(4096) < 0.5 * 2 * 4096**2 * 4


plain_attention = jax.nn.dot_product_attention


def kernel_on_a_cpu(q, k, v, *, bias, mask, scale, implementation):
  """Computes what the fused kernel does: a query without a key has NaN, in its gradient too."""
  assert implementation == 'cudnn'
  chex.assert_rank([q, k, v], 4)
  if mask is not None:
    has_keys_BT1 = jnp.any(mask, axis=(-3, -1))[..., None, None]
    q = q * jnp.where(has_keys_BT1, 1.0, jnp.nan)
  return plain_attention(
    q, k, v, bias=bias, mask=mask, scale=scale, implementation='xla'
  )


def attend_by(implementation, monkeypatch):
  """Returns attention by one of the implementations, all with the same arguments."""
  if implementation == 'by parts':
    monkeypatch.setattr(attention, '_QUERIES_AT_ONCE', 2)

  def attend(q, k, v, mask, bias=None, scale=None):
    if implementation == 'cached':
      return cached_attention(
        q, jnp.moveaxis(k, -3, -1), jnp.swapaxes(v, -3, -2), mask, bias, scale=scale
      )
    whole = fused_attention if implementation == 'cudnn' else dot_product_attention
    return whole(q, k, v, mask, bias, scale=scale)

  return attend


implementations = pytest.mark.parametrize(
  'implementation', ['reference', 'by parts', 'cudnn', 'cached']
)


@implementations
def test_a_bias_is_added_to_the_scores(monkeypatch, implementation):
  monkeypatch.setattr(jax.nn, 'dot_product_attention', kernel_on_a_cpu)
  q, k, v, mask = arrays(value_dim=K)
  bias = 3.0 * jnp.asarray(np.random.default_rng(9).normal(size=(H, T, S)), jnp.float32)
  # The same scores without a bias: extra dims of queries and keys add it to their products.
  picks = jnp.broadcast_to(jnp.eye(T)[:, None], (3, T, H, T))
  bias_columns = jnp.broadcast_to(jnp.moveaxis(bias, 2, 0), (3, S, H, T))
  scale = (K + T) ** 0.5
  wanted = dot_product_attention(
    jnp.concatenate([q * (scale / K**0.5), picks * scale], -1),
    jnp.concatenate([k, bias_columns], -1),
    v,
    mask,
  )
  biased = attend_by(implementation, monkeypatch)(q, k, v, mask, bias)
  chex.assert_trees_all_close(biased, wanted, rtol=1e-4, atol=1e-5)


@implementations
def test_the_scale_multiplies_the_dot_products(monkeypatch, implementation):
  monkeypatch.setattr(jax.nn, 'dot_product_attention', kernel_on_a_cpu)
  q, k, v, mask = arrays(value_dim=K)
  attend = attend_by(implementation, monkeypatch)
  usual = attend(q, k, v, mask)
  chex.assert_trees_all_close(attend(q, k, v, mask, scale=K**-0.5), usual, rtol=1e-6)
  chex.assert_trees_all_close(
    attend(q / K**0.5, k, v, mask, scale=1.0), usual, rtol=1e-4, atol=1e-6
  )
  chex.assert_trees_all_close(
    jax.jit(attend)(q / 3, k, v, mask, None, 3 * K**-0.5), usual, rtol=1e-4, atol=1e-6
  )


@implementations
def test_a_bias_broadcasts_against_the_scores(monkeypatch, implementation):
  monkeypatch.setattr(jax.nn, 'dot_product_attention', kernel_on_a_cpu)
  q, k, v, mask = arrays((2, 3), value_dim=K)
  attend = attend_by(implementation, monkeypatch)
  for shape in ((), (T, 1), (H, 1, 1), (3, 1, T, S), (2, 1, 1, T, 1)):
    bias = jnp.asarray(np.random.default_rng(9).normal(size=shape), jnp.float32)
    chex.assert_trees_all_close(
      attend(q, k, v, mask, bias),
      attend(q, k, v, mask, jnp.broadcast_to(bias, (2, 3, H, T, S))),
      rtol=1e-5,
      atol=1e-6,
    )


@implementations
def test_an_additive_mask_is_the_boolean_one(monkeypatch, implementation):
  """M of section 3.2.3: −∞ where a key is hidden; query `EMPTY` sees nothing."""
  monkeypatch.setattr(jax.nn, 'dot_product_attention', kernel_on_a_cpu)
  q, k, v, mask = arrays(value_dim=K)
  attend = attend_by(implementation, monkeypatch)
  additive = jnp.where(mask, 0.0, -jnp.inf)[:, None]
  other = jnp.ones_like(mask) if implementation in ('cudnn', 'cached') else None

  def total(q, k, v, mask, bias):
    out = attend(q, k, v, mask, bias)
    return jnp.sum((out + 1.0) ** 2), out

  result, wanted = (
    jax.grad(total, (0, 1, 2), has_aux=True)(q, k, v, *item)
    for item in ((other, additive), (mask, None))
  )
  chex.assert_tree_all_finite(result)
  chex.assert_trees_all_close(result, wanted, rtol=1e-4, atol=1e-5)
  assert not np.any(result[1][:, EMPTY])
  through_bias = jax.grad(lambda bias: total(q, k, v, other, bias)[0])(additive)
  chex.assert_tree_all_finite(through_bias)


@pytest.mark.parametrize(
  ('leading', 'mask_kind'), [((2, 3), 'full'), ((3,), 'shared'), ((), 'none')]
)
def test_the_fused_kernel_keeps_the_reference_contract(monkeypatch, leading, mask_kind):
  monkeypatch.setattr(jax.nn, 'dot_product_attention', kernel_on_a_cpu)
  q, k, v, mask = arrays(leading, value_dim=K)
  mask = {'full': mask, 'shared': mask.reshape(-1, T, S)[0], 'none': None}[mask_kind]

  def run(attend):
    def total(q, k, v):
      out = attend(q, k, v, mask)
      return jnp.sum((out + 1.0) ** 2), out

    return jax.jit(jax.grad(total, (0, 1, 2), has_aux=True))(q, k, v)

  gradients, out = run(fused_attention)
  chex.assert_trees_all_close(
    (gradients, out), run(dot_product_attention), rtol=1e-4, atol=1e-5
  )
  if mask is not None:
    assert not np.any(out[..., EMPTY, :, :])
    assert not np.any(gradients[0][..., EMPTY, :, :])


@pytest.mark.parametrize('with_bias', [False, True])
@pytest.mark.parametrize('leading', [(2, 3), ()])
def test_a_projection_of_an_empty_query_is_the_projection_of_zeros(
  monkeypatch, leading, with_bias
):
  monkeypatch.setattr(jax.nn, 'dot_product_attention', kernel_on_a_cpu)
  *given, mask = arrays(leading, value_dim=K)
  rng = np.random.default_rng(4)
  restrictions = (mask,)
  if with_bias:  # One head of a query may attend to nothing.
    bias_HTS = np.zeros((H, *mask.shape[-2:]), np.float32)
    bias_HTS[0, 1] = -np.inf
    restrictions = mask, jnp.asarray(bias_HTS)
  kernel = jnp.asarray(rng.normal(size=(H, K, 2)), jnp.float32)
  bias = jnp.asarray(rng.normal(size=2), jnp.float32)

  def project(x, kernel, bias, keep=None):
    y = jnp.tensordot(x, kernel, 2)
    if keep is not None:
      y = jnp.where(keep, y, 0)
    return y + jnp.broadcast_to(bias, y.shape)

  def fused(*given):
    *qkv, kernel, bias = given
    return fused_attention(
      *qkv, *restrictions, project=lambda x, keep: project(x, kernel, bias, keep)
    )

  def reference(*given):
    *qkv, kernel, bias = given
    return project(dot_product_attention(*qkv, *restrictions), kernel, bias)

  def run(attend):
    def total(*given):
      out = attend(*given)
      return jnp.sum((out + 1.0) ** 2), out

    gradient = jax.grad(total, (0, 1, 2, 3, 4), has_aux=True)
    return jax.jit(gradient)(*given, kernel, bias)

  gradients, out = run(fused)
  chex.assert_trees_all_close((gradients, out), run(reference), rtol=1e-4, atol=1e-5)
  assert not np.any(gradients[0][..., EMPTY, :, :])
  chex.assert_trees_all_equal(
    out[..., EMPTY, :], jnp.broadcast_to(bias, out[..., EMPTY, :].shape)
  )


def test_the_requirements_that_a_device_lacks_for_the_fused_kernel_are_named(
  monkeypatch,
):
  for backend, capability, key_dim, missing in (
    ('cpu', None, 64, 'an NVIDIA GPU; JAX runs on cpu here'),
    ('gpu', '8.0', 128, ''),
    ('gpu', '8.9', 136, 'heads of more than 128 dims; got key_dim=136 and 8.9'),
    ('gpu', '10.0', 256, ''),
    ('gpu', 'gfx90a', 136, ''),
  ):
    monkeypatch.setattr(jax, 'default_backend', lambda backend=backend: backend)
    device = types.SimpleNamespace(
      **{'compute_capability': capability} if capability else {}
    )
    monkeypatch.setattr(jax, 'devices', lambda device=device: [device])
    message = missing_for_fused_attention(key_dim)
    assert missing in message and bool(message) == bool(missing)


@pytest.mark.parametrize('at_once', [256, 2])
def test_weight_dropout_drops_weights_and_scales_the_others(monkeypatch, at_once):
  monkeypatch.setattr(attention, '_QUERIES_AT_ONCE', at_once)
  q, k, v, mask = arrays()
  # Values that are the identity give the weights.
  own = jnp.broadcast_to(jnp.eye(S)[:, None], (3, S, H, S))
  _, weights = attention_with_weights(q, k, own, mask)
  drop = AttentionDropout(jax.random.key(0), 0.25)
  dropped = jnp.moveaxis(dot_product_attention(q, k, own, mask, dropout=drop), -2, 1)
  kept = dropped != 0
  assert 0.6 < float(kept.sum() / (weights != 0).sum()) < 0.9
  chex.assert_trees_all_close(dropped, jnp.where(kept, weights / 0.75, 0), rtol=1e-5)
  chex.assert_trees_all_equal(
    dot_product_attention(q, k, v, mask, dropout=drop._replace(rate=0.0)),
    dot_product_attention(q, k, v, mask),
  )
  everywhere = (
    jnp.moveaxis(dot_product_attention(0 * q, k, own, dropout=drop), -2, 1) != 0
  )
  # No two parts drop alike.
  assert np.any(everywhere[..., :2, :] != everywhere[..., 2:4, :])
