"""A layer's matrix product, with a gradient that is fast on a CPU; the logits and their softmax."""

import math

import jax
import jax.numpy as jnp


@jax.custom_vjp
def linear(x, kernel_IO) -> jax.Array:
  """Returns x · W, with I inputs and O outputs.

  The gradient of W is xᵀ · (gradient of the result). On a CPU, XLA transposes this product
  rather than a factor, and then cannot use its fastest kernels. So this function transposes the
  smaller factor there. On other platforms the gradient is XLA's own. Forward differentiation is as
  `transformer.ops` describes. Both factors have the same type.
  """
  return _linear(x, kernel_IO)


def _linear(x, kernel_IO):
  return jnp.einsum('...I,IO->...O', x, kernel_IO)


def _forward(x, kernel_IO):
  # Not `linear`, so that the gradient can be differentiated forwards.
  return _linear(x, kernel_IO), (x, kernel_IO)


def _backward(saved, gradient):
  x, kernel_IO = saved
  positions, (inputs, outputs) = math.prod(x.shape[:-1]), kernel_IO.shape
  gradient_x = jnp.einsum('...O,IO->...I', gradient, kernel_IO)
  gradient_IO = jax.lax.platform_dependent(
    x.reshape(positions, inputs),
    gradient.reshape(positions, outputs),
    cpu=_product_on_cpu,
    default=lambda x_PI, gradient_PO: jnp.einsum('PI,PO->IO', x_PI, gradient_PO),
  )
  return gradient_x, gradient_IO


def _product_on_cpu(x_PI, gradient_PO):
  # The barriers keep XLA from folding the transpositions into the product.
  if x_PI.shape[1] <= gradient_PO.shape[1]:
    return jax.lax.optimization_barrier(x_PI.T) @ gradient_PO
  return jax.lax.optimization_barrier(jax.lax.optimization_barrier(gradient_PO.T) @ x_PI).T


linear.defvjp(_forward, _backward)


def logits(x_BTD, output_ND) -> jax.Array:
  """Returns x · outputᵀ in float32, [..., N], from factors of the type of x [..., D]."""
  return jnp.einsum(
    '...D,ND->...N', x_BTD, output_ND.astype(x_BTD.dtype), preferred_element_type=jnp.float32
  )


def log_softmax(logits) -> jax.Array:
  """Returns log-probabilities over the last axis, float32 [..., N].

  On a CPU, XLA would compute the product, the maximum and the difference as one kernel, and so
  write all differences. Here what reads a log-probability computes it from the logit. Other
  platforms have kernels for the whole function.
  """
  return jax.lax.platform_dependent(logits, cpu=_log_softmax_on_cpu, default=jax.nn.log_softmax)


def _log_softmax_on_cpu(logits):
  logits = jax.lax.optimization_barrier(logits)
  largest = jax.lax.optimization_barrier(jnp.max(logits, axis=-1, keepdims=True))
  total = jax.lax.optimization_barrier(jnp.sum(jnp.exp(logits - largest), axis=-1, keepdims=True))
  return logits - largest - jnp.log(total)


def with_bias(x_BTD, output_ND, bias_N) -> tuple[jax.Array, jax.Array]:
  """Returns factors whose product is x · outputᵀ + bias.

  The bias is one more column of the output projection, and x has ones there. So the loss, which
  computes the product in chunks, needs no argument for it. If x has 16 bits, the product rounds the
  projection to them, so a second column has what the rounding of the bias leaves over. Without a
  bias, the other arrays are returned as they are.
  """
  if bias_N is None:
    return x_BTD, output_ND
  columns = [bias_N]
  if x_BTD.dtype != bias_N.dtype:
    # Unlike two conversions, XLA keeps this one.
    rounding = jnp.finfo(x_BTD.dtype)
    rounded_N = jax.lax.reduce_precision(bias_N, rounding.nexp, rounding.nmant)
    columns = [rounded_N, bias_N - rounded_N]
  ones = jnp.ones((*x_BTD.shape[:-1], len(columns)), x_BTD.dtype)
  return (
    jnp.concatenate([x_BTD, ones], axis=-1),
    jnp.concatenate([output_ND, jnp.stack(columns, axis=-1)], axis=-1),
  )
