"""A matrix product whose gradient is laid out for the machine."""

import jax
import jax.numpy as jnp


@jax.custom_vjp
def linear(x, kernel_IO):
  """x · W, with I inputs and O outputs.

  The gradient of W is a product over all positions, one factor of which must be
  transposed. XLA's choice on a CPU is to transpose the result and to leave its
  fastest kernels for it; here the smaller factor is transposed. Compiled for
  anything else, the gradient is XLA's own.

  Args:
    x: [..., I].
    kernel_IO: of the same type.

  Returns:
    [..., O].
  """
  return jnp.einsum('...I,IO->...O', x, kernel_IO)


def _forward(x, kernel_IO):
  return linear(x, kernel_IO), (x, kernel_IO)


def _backward(saved, gradient):
  x, kernel_IO = saved
  inputs, outputs = kernel_IO.shape
  gradient_x = jnp.einsum('...O,IO->...I', gradient, kernel_IO)
  gradient_IO = jax.lax.platform_dependent(
      x.reshape(-1, inputs), gradient.reshape(-1, outputs), cpu=_transposing_the_smaller,
      default=_plain_product)
  return gradient_x, gradient_IO


def _transposing_the_smaller(x_PI, gradient_PO):
  # The barriers keep XLA from folding the transpositions into the product again.
  if x_PI.shape[1] <= gradient_PO.shape[1]:
    return jax.lax.optimization_barrier(x_PI.T) @ gradient_PO
  return jax.lax.optimization_barrier(jax.lax.optimization_barrier(gradient_PO.T) @ x_PI).T


def _plain_product(x_PI, gradient_PO):
  return jnp.einsum('PI,PO->IO', x_PI, gradient_PO)


linear.defvjp(_forward, _backward)
