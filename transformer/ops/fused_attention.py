"""Scaled dot-product attention with a fused kernel; names hold shapes as in `ops.attention`."""

import jax
import jax.numpy as jnp

from transformer.ops.attention import check_arrays


def fused_attention(
  q_BTHK, k_BSHK, v_BSHV, mask_BTS=None, bias_BHTS=None, *, scale=None, project=None
) -> jax.Array:
  """Computes `dot_product_attention` with cuDNN's fused kernel.

  It requires an NVIDIA GPU, 16-bit floats and K = V.

  Args:
    project: None, or the output projection, which is applied to the result with one leading axis:
      a function of the result [B, T, H, V], and of booleans [B, T, 1] or None. It zeroes its
      product [B, T, D] where they are False, for queries without keys. XLA fuses this with what
      follows the product, but not with the kernel.
  """
  check_arrays(q_BTHK, k_BSHK, v_BSHV)
  *leading, queries, heads, _ = q_BTHK.shape
  shape = (queries, k_BSHK.shape[-3])

  def rows(x):
    return x.reshape(-1, *x.shape[-3:])

  mask = jnp.ones((1, 1, *shape), bool)
  if mask_BTS is not None:
    mask = rows(jnp.broadcast_to(mask_BTS, (*leading, *shape))[..., None, :, :])
  bias = None
  if bias_BHTS is not None:
    # A bias shared by all rows is not broadcast to them.
    bias_leading = leading if bias_BHTS.ndim > 3 else (1,)
    bias = rows(jnp.broadcast_to(bias_BHTS, (*bias_leading, heads, *shape)))
    seen = bias != -jnp.inf
    mask = mask & seen
    bias = jnp.where(seen, bias, 0).astype(q_BTHK.dtype)
  # A query that may attend to no key attends to all keys, and its output is then zeroed. A fully
  # masked row has a NaN gradient if the number of keys is not a multiple of the kernel's blocks.
  has_keys_BHT1 = jnp.any(mask, axis=-1, keepdims=True)
  out = jax.nn.dot_product_attention(
    rows(q_BTHK),
    rows(k_BSHK),
    rows(v_BSHV),
    bias=bias,
    mask=mask | ~has_keys_BHT1,
    scale=scale,
    implementation='cudnn',
  )
  has_keys_BTH1 = jnp.swapaxes(has_keys_BHT1, -3, -2)
  if project and bias is None:
    out = project(out, has_keys_BTH1[..., 0])
  else:
    out = jnp.where(has_keys_BTH1, out, jnp.zeros((), out.dtype))
    if project:  # A bias of -inf may leave only some heads of a query without keys.
      out = project(out, None)
  return out.reshape(*leading, *out.shape[1:])


def missing_for_fused_attention(key_dim: int) -> str:
  """Returns the unmet requirement of `fused_attention` on the default device; '' if none."""
  backend = jax.default_backend()
  if backend != 'gpu':
    return f'an NVIDIA GPU; JAX runs on {backend} here'
  # NVIDIA: a version such as 8.0. Other vendors: a name.
  capability = getattr(jax.devices()[0], 'compute_capability', '')
  if key_dim > 128 and capability[:1].isdigit() and float(capability) < 9:
    return (
      f'a GPU of compute capability 9.0 for heads of more than 128 dims; got '
      f'key_dim={key_dim} and {capability}'
    )
  return ''
