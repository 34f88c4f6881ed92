"""The matrix product of a dense layer, with a gradient that is fast on CPUs, and the logits."""

import functools

import jax
import jax.numpy as jnp


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def linear(x, kernel, axes=1, dtype=jnp.float32) -> jax.Array:
  """Returns x · W in `dtype`: multiplies the last `axes` axes of x by the first ones of W.

  Both factors have the same type, and so have the gradients. On a CPU, the gradient of a matrix is
  `_kernel_gradient`; kernels with more axes keep XLA's gradient, and so the float32 bits of earlier
  versions. For forward-mode differentiation, see `transformer.ops`.
  """
  return _forward(x, kernel, axes, dtype)[0]


def _forward(x, kernel, axes, dtype):
  # Not `linear`, which has no JVP: forward mode over the gradient needs one.
  y = jnp.tensordot(x, kernel, axes, preferred_element_type=dtype)
  return y, (x, kernel)


def _backward(axes, _, residuals, gradient):
  x, kernel = residuals
  gradient = gradient.astype(x.dtype)
  product = functools.partial(jnp.tensordot, axes=axes)
  gradient_x, gradient_kernel = jax.vjp(product, x, kernel)[1](gradient)
  if kernel.ndim == 2:
    gradient_kernel = jax.lax.platform_dependent(
      x.reshape(-1, kernel.shape[0]),
      gradient.reshape(-1, kernel.shape[1]),
      cpu=_kernel_gradient,
      default=lambda *_: gradient_kernel,
    )
  return gradient_x, gradient_kernel


linear.defvjp(_forward, _backward)


def _kernel_gradient(x_PI, gradient_PO) -> jax.Array:
  """Returns xᵀ · gradient, [I, O]; transposes the smaller factor.

  By default, XLA transposes the product, and then cannot use its fastest kernels on a CPU: a
  training step on two cores takes 10% longer for the phrasebook's model, and 6% for the base
  model.
  """
  # The barriers keep XLA from folding the transposes into the product.
  barrier = jax.lax.optimization_barrier
  if x_PI.shape[1] <= gradient_PO.shape[1]:
    return barrier(x_PI.T) @ gradient_PO
  return barrier(barrier(gradient_PO.T) @ x_PI).T


def logits(x_BTD, output_ND) -> jax.Array:
  """Returns x · outputᵀ in float32, [..., N]; both factors have the type of x [..., D]."""
  return jnp.einsum(
    '...D,ND->...N',
    x_BTD,
    output_ND.astype(x_BTD.dtype),
    preferred_element_type=jnp.float32,
  )


def fold_bias(x_BTD, output_ND, bias_N) -> tuple[jax.Array, jax.Array]:
  """Returns factors whose product is x · outputᵀ + bias; without a bias, x and output unchanged.

  The bias becomes one more column of the output projection, with ones in x. So the loss, which
  computes the product in chunks, needs no bias argument. If x has 16 bits, the product rounds the
  projection to 16 bits. A second column then holds the rounding error of the bias.
  """
  if bias_N is None:
    return x_BTD, output_ND
  columns = [bias_N]
  if x_BTD.dtype != bias_N.dtype:
    # XLA would remove a pair of type conversions; it keeps `reduce_precision`.
    rounding = jnp.finfo(x_BTD.dtype)
    rounded_N = jax.lax.reduce_precision(bias_N, rounding.nexp, rounding.nmant)
    columns = [rounded_N, bias_N - rounded_N]
  ones = jnp.ones((*x_BTD.shape[:-1], len(columns)), x_BTD.dtype)
  return (
    jnp.concatenate([x_BTD, ones], axis=-1),
    jnp.concatenate([output_ND, jnp.stack(columns, axis=-1)], axis=-1),
  )
