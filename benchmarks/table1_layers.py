"""The layers of table 1 of the paper as pure functions on one sequence, and their cost.

The counts come from programs, not from formulas: FLOPs from XLA's analysis of the compiled
program, sequential matrix products from the traced program, and path lengths from Jacobians.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from docs.textbook import HeadWeights, multi_head_attention
from transformer.ops.attention import attention_with_weights, dot_product_attention

# K, r and h; r is odd, so that the neighborhood has a center.
KERNEL, NEIGHBORHOOD, HEADS = (
  3,
  33,
  8,
)
_PRODUCTS = ('dot_general', 'conv_general_dilated')


class Layer(NamedTuple):
  """A row of table 1.

  Attributes:
    name: the row's name.
    formula: the paper's complexity of a layer.
    evaluate: a function (n, d) -> the value of the formula.
    sequential: the paper's sequential operations.
    path: the paper's maximum path length.
    init: a function (random key, d) -> weights.
    apply: the layer, a function (weights, x [T, D]) -> [T, D].
    advance: one operation at all positions, a function (weights, h [T, D], x [T, D],
      dilation) -> [T, D], where h is the result of the previous operation. It is the next
      layer of a stack, or the next step of a recurrent layer, which reads its input x again.
    begins_with_input: True if the first h is the input, False if it is zeros.
    dilation: the dilation of a layer divided by the dilation of the layer below.
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
  """Equation 1 with one head and the input as queries, keys and values."""
  x_THD = x_TD[:, None, :]
  # `attention_with_weights` has no loop over chunks of queries: XLA counts a loop's body once.
  out_THD, _ = attention_with_weights(x_THD, x_THD, x_THD)
  return out_THD[:, 0, :]


def projected_self_attention(weights: HeadWeights, x_TD):
  """The model's multi-head self-attention, with its four projections."""
  return multi_head_attention(x_TD, x_TD, x_TD, weights)


def restricted_self_attention(_, x_TD):
  """Equation 1 over the r positions around each position; fewer near both ends."""
  length = x_TD.shape[0]
  near_TS = (
    jnp.arange(length)[:, None]
    + jnp.arange(-(NEIGHBORHOOD // 2), NEIGHBORHOOD // 2 + 1)[None, :]
  )
  near_TSHD = x_TD[jnp.clip(near_TS, 0, length - 1)][:, :, None, :]
  mask_TQS = ((near_TS >= 0) & (near_TS < length))[:, None, :]
  return dot_product_attention(x_TD[:, None, None, :], near_TSHD, near_TSHD, mask_TQS)[
    :, 0, 0, :
  ]


class RecurrentWeights(NamedTuple):
  """Matrices [D, D] for the input and for the previous state."""

  input_DD: Any
  state_DD: Any


def recurrent(weights: RecurrentWeights, x_TD, unroll: int = 1):
  """Computes h_t = tanh(x_t W + h_{t−1} U), with one product for all inputs.

  Args:
    weights: W and U.
    x_TD: the sequence.
    unroll: steps in one iteration of the compiled loop.
  """

  def turn(h_D, in_D):
    h_D = _turn(weights, h_D, in_D)
    return h_D, h_D

  return jax.lax.scan(
    turn, jnp.zeros_like(x_TD[0]), x_TD @ weights.input_DD, unroll=unroll
  )[1]


def _turn(weights, h, inputs):
  return jnp.tanh(inputs + h @ weights.state_DD)


def _advance_recurrent(weights, h_TD, x_TD, dilation):
  """One recurrent step at all positions, each from the state of the previous position."""
  before_TD = jnp.pad(h_TD, ((1, 0), (0, 0)))[:-1]
  return _turn(weights, before_TD, x_TD @ weights.input_DD)


def convolution(kernel_SDD, x_TD, dilation: int = 1):
  """A causal convolution: over all channels of each position and the k − 1 positions before it.

  A symmetric convolution would connect the same number of positions in one operation. If dilated,
  its paths between the ends would leave the sequence.
  """
  return jax.lax.conv_general_dilated(
    x_TD[None],
    kernel_SDD,
    (1,),
    [((KERNEL - 1) * dilation, 0)],
    rhs_dilation=(dilation,),
    dimension_numbers=('NWC', 'WIO', 'NWC'),
  )[0]


class SeparableWeights(NamedTuple):
  """A kernel for each channel, [k, 1, D], and a matrix [D, D] over the channels."""

  channels_S1D: Any
  matrix_DD: Any


def separable_convolution(weights: SeparableWeights, x_TD):
  """A depthwise convolution, then a product over the channels (Chollet, 2017)."""
  out_BTD = jax.lax.conv_general_dilated(
    x_TD[None],
    weights.channels_S1D,
    (1,),
    [(KERNEL - 1, 0)],
    dimension_numbers=('NWC', 'WIO', 'NWC'),
    feature_group_count=x_TD.shape[-1],
  )
  return out_BTD[0] @ weights.matrix_DD


def _of_stack(apply):
  return lambda weights, h_TD, x_TD, dilation: apply(weights, h_TD)


def _random(key, *shape, inputs):
  return jax.random.normal(key, shape) / inputs**0.5


def _no_weights(key, d):
  return ()


def _projections(key, d):
  keys = jax.random.split(key, 4)
  sides = [_random(part_key, d, HEADS, d // HEADS, inputs=d) for part_key in keys[:3]]
  return HeadWeights(*sides, _random(keys[3], HEADS, d // HEADS, d, inputs=d))


def _recurrent_weights(key, d):
  return RecurrentWeights(
    *(_random(part, d, d, inputs=d) for part in jax.random.split(key))
  )


def _kernel(key, d):
  return _random(key, KERNEL, d, d, inputs=KERNEL * d)


def _separable_weights(key, d):
  keys = jax.random.split(key)
  return SeparableWeights(
    _random(keys[0], KERNEL, 1, d, inputs=KERNEL), _random(keys[1], d, d, inputs=d)
  )


_CONVOLUTION = Layer(
  'convolution',
  'k·n·d²',
  lambda n, d: KERNEL * n * d * d,
  '1',
  'n/k',
  _kernel,
  convolution,
  lambda kernel_SDD, h_TD, x_TD, dilation: convolution(kernel_SDD, h_TD, dilation),
)
LAYERS = (
  Layer(
    'self-attention',
    'n²·d',
    lambda n, d: n * n * d,
    '1',
    '1',
    _no_weights,
    self_attention,
    _of_stack(self_attention),
  ),
  Layer(
    'the same with projections',
    'n²·d + n·d²',
    lambda n, d: n * n * d + n * d * d,
    '1',
    '1',
    _projections,
    projected_self_attention,
    _of_stack(projected_self_attention),
  ),
  Layer(
    'recurrent',
    'n·d²',
    lambda n, d: n * d * d,
    'n',
    'n',
    _recurrent_weights,
    recurrent,
    _advance_recurrent,
    begins_with_input=False,
  ),
  _CONVOLUTION,
  Layer(
    'separable convolution',
    'k·n·d + n·d²',
    lambda n, d: KERNEL * n * d + n * d * d,
    '1',
    'n/k',
    _separable_weights,
    separable_convolution,
    _of_stack(separable_convolution),
  ),
  Layer(
    'restricted self-attention',
    'r·n·d',
    lambda n, d: NEIGHBORHOOD * n * d,
    '1',
    'n/r',
    _no_weights,
    restricted_self_attention,
    _of_stack(restricted_self_attention),
  ),
)
# The same layer in a dilated stack; only its path length differs.
DILATED = _CONVOLUTION._replace(
  name='convolution, dilated', path='log_k n', dilation=KERNEL
)


def inputs(layer: Layer, n: int, d: int, seed: int = 0):
  """Returns random weights of a layer, and a random sequence [n, d]."""
  keys = jax.random.split(jax.random.key(seed))
  return layer.init(keys[0], d), jax.random.normal(keys[1], (n, d))


def flops(layer: Layer, n: int, d: int) -> float:
  """Returns the FLOPs of a layer by XLA's analysis of the compiled program.

  XLA counts the body of a loop once. For a recurrent layer, one step is compiled separately, and
  its FLOPs are added for the n − 1 steps that XLA does not count.
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
  """Returns the longest chain of matrix products that depend on each other, from the trace."""
  closed = jax.make_jaxpr(layer.apply)(*jax.eval_shape(lambda: inputs(layer, n, d)))
  return max(_depths(closed.jaxpr, [0] * len(closed.jaxpr.invars)))


def _depths(jaxpr, given: Sequence[int]) -> list[int]:
  """Returns the longest chain of products up to each output, given the chains up to each input."""
  depths = dict(zip(jaxpr.invars, given, strict=True))
  for equation in jaxpr.eqns:
    before = [
      0 if hasattr(atom, 'val') else depths.get(atom, 0) for atom in equation.invars
    ]
    name, inner = (
      equation.primitive.name,
      [value for value in equation.params.values() if hasattr(value, 'eqns')],
    )
    if name == 'scan':
      after = _depths_of_scan(equation, before)
    elif name in ('while', 'cond'):
      raise ValueError(f'the turns of a {name} cannot be known from the traced program')
    elif inner:
      after = _depths(getattr(inner[0], 'jaxpr', inner[0]), before)
    else:
      after = [max(before, default=0) + (name in _PRODUCTS)] * len(equation.outvars)
    depths.update(zip(equation.outvars, after, strict=True))
  return [
    0 if hasattr(variable, 'val') else depths.get(variable, 0)
    for variable in jaxpr.outvars
  ]


def _depths_of_scan(equation, before):
  turn = getattr(equation.params['jaxpr'], 'jaxpr', equation.params['jaxpr'])

  def whole(outside, inside):
    """Returns the number of variables that each iteration reads whole, not as a slice."""
    return sum(
      one.aval.shape == other.aval.shape
      for one, other in zip(outside, inside, strict=True)
    )

  carried = whole(equation.outvars, turn.outvars)
  constants = whole(equation.invars, turn.invars) - carried
  fixed, carry = before[:constants], before[constants : constants + carried]
  slices, stacked = before[constants + carried :], []
  for _ in range(equation.params['length']):
    after = _depths(turn, [*fixed, *carry, *slices])
    carry, last = after[:carried], after[carried:]
    stacked = [max(pair) for pair in zip(stacked or last, last, strict=True)]
  return [*carry, *stacked]


def path_length(layer: Layer, n: int, d: int = 2) -> int:
  """Returns the largest number of operations between an input and an output position.

  An operation is one layer of a stack or one step of a recurrent layer. It connects positions where
  its Jacobian is not zero. The result is the maximum over all pairs that are ever connected.

  Raises:
    ValueError: a position never reaches a later position.
  """
  weights, x_TD = inputs(layer, n, max(d, HEADS) if layer.init is _projections else d)

  def total_T(h_TD, x_TD, dilation):
    # The sum over a position's outputs; for random numbers its gradient is not zero by chance.
    return layer.advance(weights, h_TD, x_TD, dilation).sum(axis=-1)

  jacobians = jax.jit(jax.jacrev(total_T, argnums=(0, 1)), static_argnums=2)
  reached = np.eye(n, dtype=bool) if layer.begins_with_input else np.zeros((n, n), bool)
  ever, before, operations = np.zeros((n, n), bool), -1, 0
  while ever.sum() > before:
    from_h, from_x = (
      np.any(np.asarray(each_TSD) != 0, axis=-1)
      for each_TSD in jacobians(x_TD, x_TD, layer.dilation**operations)
    )
    reached = from_h @ reached | from_x
    before, ever, operations = ever.sum(), ever | reached, operations + 1
  if not ever[np.tril_indices(n)].all():
    raise ValueError(f'{layer.name}: some of {n} positions never reach a later one')
  return operations - 1  # The last operation connected no new pair.
