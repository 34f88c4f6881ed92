"""The layers of table 1 of the paper, pure functions on one sequence, and what is counted of them.

Counted is what a program does, not what a formula says: FLOPs by XLA of what it compiled, matrix
products that must wait for each other in the traced program, and which inputs reach which outputs
by the Jacobian of what a layer does at a time.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer.ops.attention import dot_product_attention
from transformer.ops.self_attention import HeadWeights, multi_head_attention

KERNEL, NEIGHBOURHOOD, HEADS = 3, 33, 8  # k, r and h; r is odd, to have a middle.
_PRODUCTS = ('dot_general', 'conv_general_dilated')


class Layer(NamedTuple):
  """A row of table 1.

  Attributes:
    name: what it is called.
    formula: the paper's complexity of a layer.
    evaluate: the formula's value for n and d.
    sequential: the paper's sequential operations.
    path: the paper's maximum path length.
    init: (random key, d) -> weights.
    apply: (weights, x [T, D]) -> [T, D], the layer.
    advance: (weights, h [T, D], x [T, D], dilation) -> [T, D]: what happens at a
      time, at all positions; h is what it gave the time before. A stack of layers takes
      the next layer; a recurrent one takes the next turn, and reads its input x again.
    begins_with_input: whether h is the input at first, or nothing is.
    dilation: of a layer, in that of the one below it.
  """

  name: str
  formula: str
  evaluate: Callable[[int, int], int]
  sequential: str
  path: str
  init: Callable
  apply: Callable
  advance: Callable
  begins_with_input: bool = True
  dilation: int = 1


def self_attention(_, x_TD):
  """Equation 1 with a single head, whose queries, keys and values are the input itself."""
  x_THD = x_TD[:, None, :]
  # Weights are asked for, lest the queries be taken in parts: XLA counts a loop's body once.
  out_THD, _ = dot_product_attention(x_THD, x_THD, x_THD, return_weights=True)
  return out_THD[:, 0, :]


def projected_self_attention(weights: HeadWeights, x_TD):
  """Multi-head self-attention as the model has it, with its four projections."""
  return multi_head_attention(x_TD, x_TD, x_TD, weights)


def restricted_self_attention(_, x_TD):
  """Equation 1 over the r positions around each, and fewer at both ends."""
  length = x_TD.shape[0]
  near_TS = jnp.arange(length)[:, None] + jnp.arange(-(NEIGHBOURHOOD // 2),
                                                     NEIGHBOURHOOD // 2 + 1)[None, :]
  near_TSHD = x_TD[jnp.clip(near_TS, 0, length - 1)][:, :, None, :]
  mask_TQS = ((near_TS >= 0) & (near_TS < length))[:, None, :]
  return dot_product_attention(x_TD[:, None, None, :], near_TSHD, near_TSHD, mask_TQS)[:, 0, 0, :]


class RecurrentWeights(NamedTuple):
  """[D, D] each: of the input, and of the state before."""

  input_DD: Any
  state_DD: Any


def recurrent(weights: RecurrentWeights, x_TD, unroll: int = 1):
  """h_t = tanh(x_t W + h_{t−1} U), the products of all inputs in one.

  Args:
    weights: W and U.
    x_TD: the sequence.
    unroll: turns that are written out in a turn of the compiled loop.
  """
  def turn(h_D, in_D):
    h_D = _turn(weights, h_D, in_D)
    return h_D, h_D

  return jax.lax.scan(turn, jnp.zeros_like(x_TD[0]), x_TD @ weights.input_DD, unroll=unroll)[1]


def _turn(weights, h, inputs):
  return jnp.tanh(inputs + h @ weights.state_DD)


def _advance_recurrent(weights, h_TD, x_TD, dilation):
  """A turn at every position at once, each from the state before it."""
  before_TD = jnp.pad(h_TD, ((1, 0), (0, 0)))[:-1]
  return _turn(weights, before_TD, x_TD @ weights.input_DD)


def convolution(kernel_SDD, x_TD, dilation: int = 1):
  """A convolution over all channels of each position and of k − 1 before it.

  One that reaches to both sides connects no more at a time; dilated, its way from one
  end to the other would lead past the ends.
  """
  return jax.lax.conv_general_dilated(
      x_TD[None], kernel_SDD, (1,), [((KERNEL - 1) * dilation, 0)], rhs_dilation=(dilation,),
      dimension_numbers=('NWC', 'WIO', 'NWC'))[0]


def _of_stack(apply):
  return lambda weights, h_TD, x_TD, dilation: apply(weights, h_TD)


def _random(key, *shape, inputs):
  return jax.random.normal(key, shape) / inputs ** 0.5


def _no_weights(key, d):
  return ()


def _projections(key, d):
  keys = jax.random.split(key, 4)
  sides = [_random(each, d, HEADS, d // HEADS, inputs=d) for each in keys[:3]]
  return HeadWeights(*sides, _random(keys[3], HEADS, d // HEADS, d, inputs=d))


def _recurrent_weights(key, d):
  return RecurrentWeights(*(_random(each, d, d, inputs=d) for each in jax.random.split(key)))


def _kernel(key, d):
  return _random(key, KERNEL, d, d, inputs=KERNEL * d)


_CONVOLUTION = Layer('convolution', 'k·n·d²', lambda n, d: KERNEL * n * d * d, '1', 'n/k', _kernel,
                     convolution, lambda kernel_SDD, h_TD, x_TD, dilation: (
                         convolution(kernel_SDD, h_TD, dilation)))
LAYERS = (
    Layer('self-attention', 'n²·d', lambda n, d: n * n * d, '1', '1', _no_weights,
          self_attention, _of_stack(self_attention)),
    Layer('the same with projections', 'n²·d + n·d²', lambda n, d: n * n * d + n * d * d, '1', '1',
          _projections, projected_self_attention, _of_stack(projected_self_attention)),
    Layer('recurrent', 'n·d²', lambda n, d: n * d * d, 'n', 'n', _recurrent_weights, recurrent,
          _advance_recurrent, begins_with_input=False),
    _CONVOLUTION,
    Layer('restricted self-attention', 'r·n·d', lambda n, d: NEIGHBOURHOOD * n * d, '1', 'n/r',
          _no_weights, restricted_self_attention, _of_stack(restricted_self_attention)),
)
# The same layer in another stack, so that only its path is another.
DILATED = _CONVOLUTION._replace(name='convolution, dilated', path='log_k n', dilation=KERNEL)


def inputs(layer: Layer, n: int, d: int, seed: int = 0):
  """Random weights of a layer, and a sequence [n, d]."""
  keys = jax.random.split(jax.random.key(seed))
  return layer.init(keys[0], d), jax.random.normal(keys[1], (n, d))


def flops(layer: Layer, n: int, d: int) -> float:
  """FLOPs of a layer by XLA's analysis of the compiled program.

  XLA counts the body of a loop once, whatever its turns. So a turn of a recurrent layer is
  compiled by itself too, and added for each of the n − 1 turns that XLA leaves out.
  """
  weights, x_TD = jax.eval_shape(lambda: inputs(layer, n, d))
  counted = _counted(layer.apply, weights, x_TD)
  if layer.apply is not recurrent:
    return counted
  h_D = jax.ShapeDtypeStruct(x_TD.shape[1:], x_TD.dtype)
  return counted + (n - 1) * _counted(_turn, weights, h_D, h_D)


def _counted(function, *arguments) -> float:
  return jax.jit(function).lower(*arguments).compile().cost_analysis()['flops']


def sequential_operations(layer: Layer, n: int, d: int) -> int:
  """The most matrix products of a layer that must wait for each other, in the traced program."""
  closed = jax.make_jaxpr(layer.apply)(*jax.eval_shape(lambda: inputs(layer, n, d)))
  return max(_depths(closed.jaxpr, [0] * len(closed.jaxpr.invars)))


def _depths(jaxpr, given: Sequence[int]) -> list[int]:
  """Products on the longest way to each output, from those on the way to each input."""
  depths = dict(zip(jaxpr.invars, given, strict=True))
  for equation in jaxpr.eqns:
    before = [0 if hasattr(each, 'val') else depths.get(each, 0) for each in equation.invars]
    name, inner = equation.primitive.name, [
        each for each in equation.params.values() if hasattr(each, 'eqns')]
    if name == 'scan':
      after = _depths_of_scan(equation, before)
    elif name in ('while', 'cond'):
      raise ValueError(f'the turns of a {name} cannot be known from the traced program')
    elif inner:
      after = _depths(getattr(inner[0], 'jaxpr', inner[0]), before)
    else:
      after = [max(before, default=0) + (name in _PRODUCTS)] * len(equation.outvars)
    depths.update(zip(equation.outvars, after, strict=True))
  return [0 if hasattr(each, 'val') else depths.get(each, 0) for each in jaxpr.outvars]


def _depths_of_scan(equation, before):
  turn = getattr(equation.params['jaxpr'], 'jaxpr', equation.params['jaxpr'])

  def whole(outside, inside):
    """How many variables each turn gets as they are, and not a slice of."""
    return sum(one.aval.shape == other.aval.shape
               for one, other in zip(outside, inside, strict=True))

  carried = whole(equation.outvars, turn.outvars)
  constants = whole(equation.invars, turn.invars) - carried
  fixed, carry = before[:constants], before[constants:constants + carried]
  slices, stacked = before[constants + carried:], []
  for _ in range(equation.params['length']):
    after = _depths(turn, [*fixed, *carry, *slices])
    carry, last = after[:carried], after[carried:]
    stacked = [max(each) for each in zip(stacked or last, last, strict=True)]
  return [*carry, *stacked]


def path_length(layer: Layer, n: int, d: int = 2) -> int:
  """The most operations, of which a layer or a turn is one, between an input and an output.

  Of all pairs of positions that are ever connected, the one that takes longest. One
  operation connects what its Jacobian is not zero for.

  Raises:
    ValueError: a position never reaches one that comes later.
  """
  weights, x_TD = inputs(layer, n, max(d, HEADS) if layer.init is _projections else d)

  def total_T(h_TD, x_TD, dilation):
    # Over what is put out at a position; which is zero by chance for no number drawn.
    return layer.advance(weights, h_TD, x_TD, dilation).sum(axis=-1)

  jacobians = jax.jit(jax.jacrev(total_T, argnums=(0, 1)), static_argnums=2)
  reached = np.eye(n, dtype=bool) if layer.begins_with_input else np.zeros((n, n), bool)
  ever, before, operations = np.zeros((n, n), bool), -1, 0
  while ever.sum() > before:
    from_h, from_x = (np.any(np.asarray(each_TSD) != 0, axis=-1) for each_TSD in jacobians(
        x_TD, x_TD, layer.dilation ** operations))
    reached = from_h @ reached | from_x
    before, ever, operations = ever.sum(), ever | reached, operations + 1
  if not ever[np.tril_indices(n)].all():
    raise ValueError(f'{layer.name}: some of {n} positions never reach a later one')
  return operations - 1  # The last connected nothing more.
