"""Rematerialisation: layers that the backward pass computes again (Chen et al., 2016)."""

from collections.abc import Callable
from typing import Any

import jax
from flax.core import lift
from flax.linen import transforms
from jax.extend.core import jaxpr_as_fun


def recomputed(call) -> Callable[..., Any]:
  """Wraps the call of a layer so that its backward pass repeats the forward pass.

  This saves the memory of the layer's activations. `flax.linen.remat` saves nothing on a CPU: XLA
  may repeat all forward passes first and keep their results. Here, the repeated forward pass of a
  layer waits for the gradient of its output. `call` is (layer, x, …) -> y, with x and y of one
  shape and type. Its parameters, random bits and results stay; gradients differ only by rounding.
  """
  return transforms.lift_transform(_lifted, call)


def _lifted(call):
  """Does the work of `recomputed`; Flax passes scopes in place of modules."""

  def inner(scope_of, variables_of, *arguments):
    def traced(variables, keys, *inputs):
      scope = scope_of(variables, keys)
      return call(scope, *inputs), variables_of(scope)

    # Traced once: Flax numbers the draws of random keys, so a second trace would draw others.
    program, shapes = jax.make_jaxpr(traced, return_shape=True)(*arguments)
    flat = jaxpr_as_fun(program)

    def forward(*arguments):
      return jax.tree.unflatten(jax.tree.structure(shapes), flat(*jax.tree.leaves(arguments)))

    def backward(arguments, gradients):
      variables, keys, x, *others = arguments
      # Where XLA ignores barriers, the sum makes x depend on the gradient. Elsewhere, the
      # barrier keeps XLA from merging the two forward passes.
      x, gradients = jax.lax.optimization_barrier((x + 0 * gradients[0], gradients))
      return jax.vjp(forward, variables, keys, x, *others)[1](gradients)

    twice = jax.custom_vjp(forward)
    twice.defvjp(lambda *arguments: (forward(*arguments), arguments), backward)
    return twice(*arguments)

  return lift.pack(inner, (True,), (True,), (True,), name='recomputed')
