"""The dense layer of attention and feed-forward sublayers."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer.model.config import ModelConfig
from transformer.ops.linear import linear


class Dense(nn.Module):
  """x · W + b, in the type of activations.

  Attributes:
    features: sizes of the last axes of the result.
    num_inputs: number of axes of x that are multiplied, the last ones.
    round_product: rounds the product to the type of activations before the bias is added. Devices
      of the mesh axis `tensor` that split the inputs then exchange partial sums of this type. If
      False, the bias is added to the float32 product, by its kernel on a GPU.
  """

  config: ModelConfig
  features: tuple[int, ...]
  use_bias: bool
  num_inputs: int = 1
  round_product: bool = False

  @nn.compact
  def __call__(self, x, keep=None) -> jax.Array:
    """Maps x; zeroes the product where `keep`, booleans that broadcast to it, is False."""
    dtype = self.config.dtype
    shape = (*x.shape[-self.num_inputs :], *self.features)
    axes = range(len(shape))
    matrix_init = nn.initializers.xavier_uniform(
      axes[: self.num_inputs], axes[self.num_inputs :]
    )
    kernel = self.param('kernel', matrix_init, shape).astype(dtype)
    product_dtype = dtype if self.round_product else jnp.float32
    y = linear(x.astype(dtype), kernel, self.num_inputs, product_dtype)
    if keep is not None:
      y = jnp.where(keep, y, jnp.zeros((), y.dtype))
    if self.use_bias:
      bias = self.param('bias', nn.initializers.zeros, self.features)
      y += jnp.broadcast_to(bias, y.shape)
    return y.astype(dtype)
