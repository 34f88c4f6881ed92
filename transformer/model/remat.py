"""Layers whose insides are computed twice, so that they need not be kept (Chen et al., 2016)."""

import jax
from flax.core import lift
from flax.linen import transforms
from jax.extend.core import jaxpr_as_fun


def recomputed(call):
  """Makes the backward pass of a layer's call begin with another forward pass of it.

  `flax.linen.remat` does so too, but on a CPU to no avail: nothing keeps XLA from
  doing all second forward passes at once, ahead of the backward pass, and holding
  what they give. Here each waits for the gradient that it is needed for.

  Args:
    call: a function (layer, x, …) -> y, with x and y of one shape and type.

  Returns:
    The same function, with the same parameters and random bits; gradients differ by
    rounding at most.
  """
  return transforms.lift_transform(_lifted, call)


def _lifted(call):
  """`recomputed`, on scopes in place of modules."""
  def inner(scope_of, variables_of, *arguments):
    def traced(variables, keys, *inputs):
      scope = scope_of(variables, keys)
      return call(scope, *inputs), variables_of(scope)

    # Traced once: Flax counts the draws of random bits, and a second trace would
    # count on and draw others.
    program, shapes = jax.make_jaxpr(traced, return_shape=True)(*arguments)
    flat = jaxpr_as_fun(program)

    def forward(*arguments):
      return jax.tree.unflatten(jax.tree.structure(shapes), flat(*jax.tree.leaves(arguments)))

    def backward(arguments, gradients):
      variables, keys, x, *others = arguments
      # Adding nothing of the gradient ties x to it where barriers are ignored; the
      # barrier, where it is not, keeps the two forward passes from being made one.
      x, gradients = jax.lax.optimization_barrier((x + 0 * gradients[0], gradients))
      return jax.vjp(forward, variables, keys, x, *others)[1](gradients)

    twice = jax.custom_vjp(forward)
    twice.defvjp(lambda *arguments: (forward(*arguments), arguments), backward)
    return twice(*arguments)

  return lift.pack(inner, (True,), (True,), (True,), name='recomputed')
