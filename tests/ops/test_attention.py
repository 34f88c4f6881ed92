"""Attention is equation 1 of the paper, however it is called and whatever is masked."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.ops import attention
from transformer.ops.attention import (
  cached_attention,
  dot_product_attention,
  masked_softmax,
)

T, S, H, K, V = 5, 7, 3, 11, 13
EMPTY = 2  # the query that may attend to nothing
LEADING = [(), (3,), (2, 3)]
with_weights = functools.partial(dot_product_attention, return_weights=True)
jitted = jax.jit(with_weights)


def arrays(leading=(3,), value_dim=V, dtype=jnp.float32, seed=0):
  """Random queries, keys, values, and a mask whose query `EMPTY` sees nothing."""
  rng = np.random.default_rng(seed)
  q, k, v = (jnp.asarray(rng.normal(size=(*leading, *shape)), dtype)
             for shape in ((T, H, K), (S, H, K), (S, H, value_dim)))
  mask = rng.random((*leading, T, S)) < 0.5
  mask[..., 0] = True
  mask[..., EMPTY, :] = False
  return q, k, v, jnp.asarray(mask)


def numpy_attention(q, k, v, mask=None):
  """Equation 1 in float64, one query and one head at a time."""
  q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
  leading = q.shape[:-3]
  mask = np.broadcast_to(True if mask is None else mask, (*leading, T, S))
  out = np.zeros((*leading, T, H, v.shape[-1]))
  weights = np.zeros((*leading, H, T, S))
  for *b, t, h in np.ndindex(*leading, T, H):
    row = mask[*b, t]
    if row.any():
      scores = k[*b, :, h] @ q[*b, t, h] / np.sqrt(q.shape[-1])
      exponentials = np.where(row, np.exp(scores - scores[row].max()), 0.0)
      weights[*b, h, t] = exponentials / exponentials.sum()
      out[*b, t, h] = weights[*b, h, t] @ v[*b, :, h]
  return out, weights


@pytest.mark.parametrize('leading', LEADING)
@pytest.mark.parametrize('masked', [True, False])
def test_it_equals_equation_1_in_float64(leading, masked):
  q, k, v, mask = arrays(leading)
  given = (q, k, v, mask if masked else None)
  chex.assert_trees_all_close(jitted(*given), numpy_attention(*given), rtol=1e-5, atol=1e-6)


def test_eager_jit_vmap_and_pmap_agree():
  given = arrays((3,))
  eager = with_weights(*given)
  for lifted in (jax.jit(with_weights), jax.vmap(with_weights), jax.pmap(with_weights)):
    chex.assert_trees_all_close(lifted(*given), eager, rtol=1e-5, atol=1e-6)
  given = arrays((2, 3))
  twice = jax.vmap(jax.vmap(with_weights))(*given)
  chex.assert_trees_all_close(twice, with_weights(*given), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('leading', LEADING)
@pytest.mark.parametrize('at_once', [1, 2, 3, 4])
def test_taking_the_queries_in_parts_changes_nothing(monkeypatch, leading, at_once):
  *given, mask = arrays(leading)
  for each in (mask, None):
    def run(q, k, v, each=each):
      return jax.value_and_grad(
          lambda *qkv: jnp.sum(jnp.sin(dot_product_attention(*qkv, each))), (0, 1, 2))(q, k, v)

    monkeypatch.setattr(attention, '_QUERIES_AT_ONCE', T)
    wanted = dot_product_attention(*given, each), jax.jit(run)(*given)
    monkeypatch.setattr(attention, '_QUERIES_AT_ONCE', at_once)
    got = dot_product_attention(*given, each), jax.jit(lambda *qkv, run=run: run(*qkv))(*given)
    chex.assert_trees_all_close(got, wanted, rtol=1e-5, atol=1e-6)


def test_what_long_sequences_keep_for_the_gradient_grows_with_their_length_alone():
  def kept(length):
    x = jnp.zeros((length, 2, 8))
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(dot_product_attention(x, x, x) ** 2)))
    return gradient.lower(x).compile().memory_analysis().temp_size_in_bytes

  assert kept(4096) < 3 * kept(2048)
  # All weights at once would be heads · T² · 4 bytes.
  assert kept(4096) < 0.5 * 2 * 4096 ** 2 * 4


@pytest.mark.parametrize('implementation', ['reference', 'by parts', 'cudnn', 'cached'])
def test_a_bias_is_added_to_the_scores(monkeypatch, implementation):
  monkeypatch.setattr(jax.nn, 'dot_product_attention', kernel_on_a_cpu)
  q, k, v, mask = arrays(value_dim=K)
  bias = 3.0 * jnp.asarray(np.random.default_rng(9).normal(size=(H, T, S)), jnp.float32)
  # The same scores without a bias: queries and keys with dims of their own for it.
  picks = jnp.broadcast_to(jnp.eye(T)[:, None], (3, T, H, T))
  told = jnp.broadcast_to(jnp.moveaxis(bias, 2, 0), (3, S, H, T))
  scale = (K + T) ** 0.5
  wanted = dot_product_attention(
      jnp.concatenate([q * (scale / K ** 0.5), picks * scale], -1), jnp.concatenate([k, told], -1),
      v, mask)
  if implementation == 'by parts':
    monkeypatch.setattr(attention, '_QUERIES_AT_ONCE', 2)
  if implementation == 'cached':
    found = cached_attention(q, jnp.moveaxis(k, 1, -1), jnp.swapaxes(v, 1, 2), mask, bias)
  else:
    kernel = 'cudnn' if implementation == 'cudnn' else 'reference'
    found = dot_product_attention(q, k, v, mask, bias, implementation=kernel)
  chex.assert_trees_all_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_bias_of_another_shape_is_refused():
  q, k, v, mask = arrays()
  with pytest.raises(ValueError, match=rf'the bias must be \[H, T, S\] = \({H}, {T}, {S}\)'):
    dot_product_attention(q, k, v, mask, jnp.zeros((H, S, T)))


def test_permuting_queries_permutes_the_rows():
  q, k, v, mask = arrays()
  order = np.array([3, 0, 4, 1, 2])
  out, weights = jitted(q, k, v, mask)
  chex.assert_trees_all_close(jitted(q[:, order], k, v, mask[:, order]),
                              (out[:, order], weights[:, :, order]), rtol=1e-6)


def test_permuting_keys_with_their_values_and_mask_columns_changes_nothing():
  q, k, v, mask = arrays()
  order = np.array([6, 2, 0, 5, 1, 4, 3])
  out, weights = jitted(q, k, v, mask)
  chex.assert_trees_all_close(jitted(q, k[:, order], v[:, order], mask[..., order]),
                              (out, weights[..., order]), rtol=1e-5, atol=1e-6)


def test_permuting_the_input_of_unmasked_self_attention_permutes_the_output():
  _, x, _, _ = arrays()
  order = np.array([6, 2, 0, 5, 1, 4, 3])
  self_attention = jax.jit(lambda x: dot_product_attention(x, x, x))
  chex.assert_trees_all_close(self_attention(x[:, order]), self_attention(x)[:, order],
                              rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize('scale', [1.0, 1e3])
def test_a_query_that_may_attend_to_nothing_gets_zeros_and_zero_gradients(dtype, scale):
  q, k, v, mask = arrays(dtype=dtype)
  q = q * jnp.asarray(scale, dtype)

  @jax.jit
  def run(q, k, v, mask):
    def total(q, k, v):
      out = dot_product_attention(q, k, v, mask)
      return jnp.sum((out.astype(jnp.float32) + 1.0) ** 2), out
    return jax.grad(total, (0, 1, 2), has_aux=True)(q, k, v)

  gradients, out = run(q, k, v, mask)
  chex.assert_tree_all_finite((gradients, out))
  assert not np.any(out[:, EMPTY])
  assert not np.any(gradients[0][:, EMPTY])
  others = np.delete(np.asarray(out, np.float32), EMPTY, axis=1)
  assert np.all(np.any(others, axis=(-1, -2)))
  gradients, out = run(q, k, v, jnp.zeros_like(mask))
  chex.assert_trees_all_equal((gradients, out), jax.tree.map(jnp.zeros_like, (gradients, out)))


def test_what_is_masked_has_no_influence_and_no_gradient():
  q, k, v, mask = arrays()
  column = 4
  mask = mask.at[..., column].set(False)
  changed = jitted(q, k.at[:, column].set(1e4), v.at[:, column].set(-1e4), mask)
  chex.assert_trees_all_equal(changed, jitted(q, k, v, mask))
  gradients = jax.grad(lambda k, v: jnp.sum(dot_product_attention(q, k, v, mask) ** 2),
                       (0, 1))(k, v)
  for gradient in gradients:
    assert not np.any(gradient[:, column])
    assert np.any(np.delete(gradient, column, axis=1))


@pytest.mark.parametrize('leading', LEADING)
def test_weights_sum_to_one_or_zero_and_times_the_values_are_the_output(leading):
  q, k, v, mask = arrays(leading)
  out, weights = jitted(q, k, v, mask)
  chex.assert_shape(weights, (*leading, H, T, S))
  chex.assert_shape(out, (*leading, T, H, V))
  wanted = np.broadcast_to(np.arange(T) != EMPTY, (*leading, H, T)).astype(np.float32)
  chex.assert_trees_all_close(weights.sum(-1), wanted, atol=1e-6)
  assert not np.any(np.where(jnp.expand_dims(mask, -3), 0.0, weights))
  product = np.einsum('...hts,...shv->...thv', weights, v)
  chex.assert_trees_all_close(out, product, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('shape', [(T, S), (1, S), (T, 1), (1, T, S), (3, 1, S), (2, 1, T, 1)])
def test_a_mask_broadcasts_against_leading_axes_queries_and_keys(shape):
  q, k, v, _ = arrays((2, 3))
  mask = np.random.default_rng(1).random(shape) < 0.6
  chex.assert_trees_all_close(jitted(q, k, v, jnp.asarray(mask)),
                              numpy_attention(q, k, v, mask), rtol=1e-5, atol=1e-6)


def test_the_softmax_of_16_bit_inputs_is_made_in_float32():
  q, k, v, mask = arrays(dtype=jnp.bfloat16)
  out, weights = with_weights(q, k, v, mask)
  assert (out.dtype, weights.dtype) == (jnp.bfloat16, jnp.float32)
  scaled_q = np.asarray(q * jnp.bfloat16(K ** -0.5), np.float64) * K ** 0.5
  wanted_out, wanted = numpy_attention(scaled_q, k, v, mask)
  chex.assert_trees_all_close(weights, wanted.astype(np.float32), atol=1e-6)
  # From a cache of float32 values, nothing but the weights could be rounded.
  keys, values = jnp.moveaxis(k, 1, -1), jnp.swapaxes(v, 1, 2)
  out = cached_attention(q, keys, values.astype(jnp.float32), mask)
  chex.assert_trees_all_close(out, wanted_out.astype(np.float32), atol=1e-6)
  assert cached_attention(q, keys, values, mask).dtype == jnp.bfloat16


def test_masked_softmax_is_the_softmax_of_what_is_let_through():
  scores = jnp.asarray(np.random.default_rng(2).normal(size=(T, S)) * 50, jnp.float32)
  plain = jax.nn.softmax(scores, axis=-1)
  chex.assert_trees_all_close(masked_softmax(scores), plain, atol=1e-6)
  chex.assert_trees_all_close(masked_softmax(scores, jnp.ones((T, S), bool)), plain, atol=1e-6)
  mask = jnp.arange(S)[None] < 3
  some = masked_softmax(scores, mask)
  chex.assert_trees_all_close(some[:, :3], jax.nn.softmax(scores[:, :3], axis=-1), atol=1e-6)
  assert not np.any(some[:, 3:])
  extreme = jnp.asarray([[-1e38, 1e38, 3e38]], jnp.float32)
  chex.assert_trees_all_close(masked_softmax(extreme, jnp.asarray([[True, False, False]])),
                              np.float32([[1, 0, 0]]))


def test_masked_softmax_of_16_bit_scores_is_made_in_float32():
  scores = jnp.asarray(np.random.default_rng(2).normal(size=(T, S)) * 5, jnp.bfloat16)
  for mask in (None, jnp.arange(S)[None] < 5):
    exact = masked_softmax(scores.astype(jnp.float32), mask)
    chex.assert_trees_all_equal(masked_softmax(scores, mask), exact)


def kernel_on_a_cpu(q, k, v, *, bias, mask, implementation):
  """What the fused kernel computes: a mean of the values where nothing may be attended to."""
  assert implementation == 'cudnn'
  chex.assert_rank([q, k, v], 4)
  return plain_attention(q, k, v, bias=bias, mask=mask, implementation='xla')


plain_attention = jax.nn.dot_product_attention


@pytest.mark.parametrize('leading', LEADING)
@pytest.mark.parametrize('mask_kind', ['full', 'shared', 'none'])
def test_the_fused_kernel_is_brought_to_the_reference_contract(monkeypatch, leading, mask_kind):
  monkeypatch.setattr(jax.nn, 'dot_product_attention', kernel_on_a_cpu)
  q, k, v, mask = arrays(leading, value_dim=K)
  mask = {'full': mask, 'shared': mask.reshape(-1, T, S)[0], 'none': None}[mask_kind]

  def run(implementation):
    def total(q, k, v):
      out = dot_product_attention(q, k, v, mask, implementation=implementation)
      return jnp.sum((out + 1.0) ** 2), out
    return jax.jit(jax.grad(total, (0, 1, 2), has_aux=True))(q, k, v)

  gradients, out = run('cudnn')
  chex.assert_trees_all_close((gradients, out), run('reference'), rtol=1e-4, atol=1e-5)
  if mask is not None:
    assert not np.any(out[..., EMPTY, :, :])
    assert not np.any(gradients[0][..., EMPTY, :, :])


def test_asking_for_weights_takes_the_reference_path(monkeypatch):
  monkeypatch.setattr(attention, '_cudnn_attention', lambda *_: pytest.fail('the kernel was used'))
  given = arrays()
  chex.assert_trees_all_equal(with_weights(*given, implementation='cudnn'), with_weights(*given))


@pytest.mark.parametrize('changed, facts', [
    ({'q': (H, K)}, ['[..., length, heads, dim]', f'({H}, {K})']),
    ({'q': (2, T, H, K)}, ['leading axes', f'(2, {T}, {H}, {K})', f'(3, {S}, {H}, {V})']),
    ({'v': (S, H, V)}, ['leading axes', f'({S}, {H}, {V})']),
    ({'k': (3, S, 1, K)}, ['number of heads', f'{H}, 1 and {H}']),
    ({'k': (3, S, H, 1)}, ['same key dim', f'{K} and 1']),
    ({'v': (3, 1, H, V)}, ['same length', f'{S} and 1']),
    ({'mask': (3, S, T)}, ['[..., T, S]', f'(3, {T}, {S})', f'bool (3, {S}, {T})']),
    ({'mask': (S,)}, ['[..., T, S]', f'bool ({S},)']),
    ({'mask': (1, 3, T, S)}, ['[..., T, S]', f'bool (1, 3, {T}, {S})']),
])
def test_shapes_that_do_not_fit_are_refused(changed, facts):
  shapes = {'q': (3, T, H, K), 'k': (3, S, H, K), 'v': (3, S, H, V), 'mask': (3, T, S)} | changed
  q, k, v = (jnp.zeros(shapes[name]) for name in 'qkv')
  with pytest.raises(ValueError) as error:
    dot_product_attention(q, k, v, jnp.ones(shapes['mask'], bool))
  assert all(fact in str(error.value) for fact in facts), str(error.value)


def test_a_mask_of_numbers_and_an_unknown_implementation_are_refused():
  q, k, v, mask = arrays()
  with pytest.raises(ValueError, match=r'must be boolean .* got float32'):
    dot_product_attention(q, k, v, mask.astype(jnp.float32))
  with pytest.raises(ValueError, match="one of reference, cudnn; got 'flash'"):
    dot_product_attention(q, k, v, mask, implementation='flash')


@pytest.mark.parametrize('place, name', [(0, 'queries'), (1, 'keys'), (2, 'values')])
def test_whole_numbers_are_refused(place, name):
  given = [*arrays()]
  given[place] = given[place].astype(jnp.int32)
  with pytest.raises(ValueError, match=f'the {name} must be floats; got int32'):
    dot_product_attention(*given)


def test_without_keys_there_are_zeros():
  q, k, v, mask = arrays()
  for some in (None, mask[..., :0]):
    out = dot_product_attention(q, k[..., :0, :, :], v[..., :0, :, :], some)
    assert out.shape == (*q.shape[:-1], V) and not np.any(out)


def test_the_fused_kernel_refuses_values_of_another_width_than_keys():
  with pytest.raises(ValueError, match=f'cudnn.*key dim.*value dim.*got {K} and {V}'):
    dot_product_attention(*arrays(dtype=jnp.bfloat16), implementation='cudnn')


@pytest.mark.skipif(jax.default_backend() != 'gpu', reason='cuDNN needs an NVIDIA GPU')
@pytest.mark.parametrize('leading', LEADING)
def test_the_real_fused_kernel_keeps_the_reference_contract(leading):
  rng = np.random.default_rng(0)
  q, k, v = (jnp.asarray(rng.normal(size=(*leading, length, H, 64)), jnp.bfloat16)
             for length in (T, S, S))
  mask = rng.random((*leading, T, S)) < 0.5
  mask[..., 0] = True
  mask[..., EMPTY, :] = False

  def run(implementation):
    def total(q, k, v):
      out = dot_product_attention(q, k, v, jnp.asarray(mask), implementation=implementation)
      return jnp.sum((out.astype(jnp.float32) + 1.0) ** 2), out
    gradients, out = jax.jit(jax.grad(total, (0, 1, 2), has_aux=True))(q, k, v)
    return jax.tree.map(lambda x: x.astype(jnp.float32), (gradients, out))

  gradients, out = run('cudnn')
  chex.assert_trees_all_close((gradients, out), run('reference'), rtol=0.05, atol=0.05)
  assert not np.any(out[..., EMPTY, :, :]) and not np.any(gradients[0][..., EMPTY, :, :])
