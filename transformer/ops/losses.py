"""The training loss, as sums and weights; the caller divides once, at the end."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer.ops import linear

# Positions in a chunk. A device holds the logits of one chunk at a time. Smaller chunks read the
# output projection from memory too often. Larger ones do not fit into a CPU's cache, or fill an
# accelerator's memory.
_CHUNK_POSITIONS = 256
_ACCELERATOR_CHUNK_POSITIONS = 4096


class Predictions(NamedTuple):
  """What the model predicts at the positions of a chunk."""

  logits: jax.Array  # float32 [..., N]
  log_normaliser: jax.Array  # [...]; logits − log_normaliser are log-probabilities
  probabilities: jax.Array  # [..., N]


class Term(NamedTuple):
  """A term of the loss beside the cross entropy against the text.

  Attributes:
    function: called for each chunk of positions with its `Predictions`, its part of `by_position`,
      and `whole`. Returns the loss of each position, and its gradient by the logits.
    by_position: arrays [B, T, ...], of which a chunk gets its positions.
    whole: a pytree of arrays that all chunks get. Neither has a gradient.
  """

  function: Callable[[Predictions, Sequence[jax.Array], Any], tuple[jax.Array, jax.Array]]
  by_position: Sequence[jax.Array] = ()
  whole: Any = ()


class _Options(NamedTuple):
  smoothing: float
  devices: int
  functions: tuple[Callable, ...]


class _Arrays(NamedTuple):
  """The arguments of the loss and of its terms, or their gradients; None has no gradient."""

  x_BTD: jax.Array
  output_ND: jax.Array
  targets_BT: Any
  weights_BT: Any
  text_share_BT: Any
  by_position: Any
  whole: Any

  def chunks(self, positions):
    """Cuts the position axis of the others into chunks, which a new first axis numbers.

    A chunk has positions of every row, because rows may be on different devices. Positions of
    weight 0 fill the last chunk. Without rows or positions, there is one empty chunk.
    """
    rows, length = self.targets_BT.shape
    count = max(-(-length // max(positions // max(rows, 1), 1)), 1)
    size = -(-length // count)

    def cut(array):
      padded = jnp.pad(array, [(0, 0), (0, count * size - length)] + [(0, 0)] * (array.ndim - 2))
      return jnp.moveaxis(padded.reshape(rows, count, size, *array.shape[2:]), 1, 0)

    return jax.tree.map(
      cut, (self.x_BTD, self.targets_BT, self.weights_BT, self.text_share_BT, self.by_position)
    )


def smoothed_cross_entropy(
  x_BTD,
  output_ND,
  targets_BT,
  weights_BT,
  smoothing=0.0,
  *,
  terms: Sequence[Term] = (),
  text_share_BT=None,
  devices=1,
) -> dict[str, jax.Array]:
  """Cross entropy of a linear output layer against label-smoothed targets, and other terms.

  The target distribution is (1 − ε) on the right token plus ε / N on every token
  of the vocabulary, the right one included (section 5.4; Szegedy et al., 2016,
  section 7). Logits, softmax and both gradients are computed for one chunk of positions after
  another. The whole [B, T, N] array never exists: moving it through memory would cost more
  than computing it. Forward differentiation is as `transformer.ops` describes.

  Args:
    x_BTD, output_ND: logits are x · outputᵀ, float32.
    targets_BT: integer token ids.
    weights_BT: numbers or booleans, the weight of each position; 0 for padding.
    smoothing: ε of label smoothing, at least 0 and below 1.
    terms: other terms of the loss.
    text_share_BT: the factor of the cross entropy in the loss at each position; None is 1.
    devices: number of devices that the rows are split over; it sets the chunk size.

  Returns:
    A dict of float32 scalars: `loss`, the weighted sum of all terms in nats, differentiable in
    `x_BTD` and `output_ND`; `nll`, that of plain cross entropies without a gradient, so that
    perplexity is exp(nll / weight); and `weight`, the sum of the weights.
  """
  if not 0.0 <= smoothing < 1.0:
    raise ValueError(f'label smoothing must be at least 0 and below 1; got {smoothing}')
  weights_BT = weights_BT.astype(jnp.float32)
  loss, nll = _summed_losses(
    _Options(smoothing, devices, tuple(term.function for term in terms)),
    _Arrays(
      x_BTD,
      output_ND,
      targets_BT,
      weights_BT,
      text_share_BT,
      [tuple(term.by_position) for term in terms],
      [term.whole for term in terms],
    ),
  )
  return {'loss': loss, 'nll': nll, 'weight': jnp.sum(weights_BT)}


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _summed_losses(options, arrays):
  """Returns the weighted sums `loss` and `nll`."""
  return _by_platform(_sums, options, arrays)


def _summed_losses_forward(options, arrays):
  """Returns the sums, and the gradients of `loss`, from the same logits."""
  return _by_platform(_sums_and_gradients, options, arrays)


def _summed_losses_backward(_, gradients, cotangents):
  cotangent, _ = cotangents
  gradient_BTD, gradient_ND = (
    (gradient * cotangent).astype(gradient.dtype) for gradient in gradients
  )
  return (_Arrays(gradient_BTD, gradient_ND, None, None, None, None, None),)


_summed_losses.defvjp(_summed_losses_forward, _summed_losses_backward)


def _by_platform(function, options, arrays):
  """Calls function(options, positions in a chunk, arrays), with the platform's chunk size."""
  return jax.lax.platform_dependent(
    arrays,
    cpu=functools.partial(function, options, _CHUNK_POSITIONS * options.devices),
    default=functools.partial(function, options, _ACCELERATOR_CHUNK_POSITIONS * options.devices),
  )


def _sums(options, positions, arrays):
  def add_chunk(sums, chunk):
    losses, *_ = _chunk_losses(options, arrays, *chunk)
    return jax.tree.map(jnp.add, sums, losses), None

  sums, _ = jax.lax.scan(add_chunk, (jnp.float32(0), jnp.float32(0)), arrays.chunks(positions))
  return sums


def _sums_and_gradients(options, positions, arrays):
  smoothing, output_ND = options.smoothing, arrays.output_ND
  vocabulary = output_ND.shape[0]

  def add_chunk(carry, chunk):
    sums, gradient_DN = carry
    x, targets, weights, text_share, _ = chunk
    losses, probabilities, gradients = _chunk_losses(options, arrays, *chunk)
    is_target = jax.nn.one_hot(targets, vocabulary, dtype=jnp.bool_)
    wanted = jnp.where(is_target, 1.0 - smoothing + smoothing / vocabulary, smoothing / vocabulary)
    error = probabilities - wanted
    if text_share is not None:
      error *= text_share[..., None]
    for gradient in gradients:
      error += gradient
    error = (error * weights[..., None]).astype(x.dtype)
    gradient_x = jnp.einsum('...N,ND->...D', error, output_ND.astype(x.dtype))
    # [D, N], not [N, D], so that XLA transposes the smaller factor.
    gradient_DN += jnp.einsum('BTD,BTN->DN', x, error, preferred_element_type=jnp.float32)
    return (jax.tree.map(jnp.add, sums, losses), gradient_DN), gradient_x

  start = (jnp.float32(0), jnp.float32(0)), jnp.zeros(output_ND.shape[::-1], jnp.float32)
  (sums, gradient_DN), gradient_x = jax.lax.scan(add_chunk, start, arrays.chunks(positions))
  length = arrays.x_BTD.shape[1]
  gradient_BTD = jax.lax.collapse(jnp.moveaxis(gradient_x, 0, 1), 1, 3)[:, :length]
  # Without the barrier, XLA makes one 16-bit product of a single chunk and its transposition,
  # which a CPU cannot run.
  gradient_ND = jax.lax.optimization_barrier(gradient_DN).T
  return sums, (gradient_BTD, gradient_ND.astype(output_ND.dtype))


def _chunk_losses(options, arrays, x, targets, weights, text_share, by_position):
  """Returns (loss, nll) summed over a chunk, the softmax, and the gradients of the terms."""
  logits = linear.logits(x, arrays.output_ND)
  peak = jnp.max(logits, axis=-1, keepdims=True)
  exponentials = jnp.exp(logits - peak)
  total = jnp.sum(exponentials, axis=-1, keepdims=True)
  log_normaliser = (peak + jnp.log(total))[..., 0]
  nll = log_normaliser - jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
  loss = nll
  if options.smoothing:
    loss = (1.0 - options.smoothing) * nll + options.smoothing * (
      log_normaliser - jnp.mean(logits, axis=-1)
    )
  predictions, gradients = Predictions(logits, log_normaliser, exponentials / total), []
  if text_share is not None:
    loss = text_share * loss
  for function, parts, whole in zip(options.functions, by_position, arrays.whole, strict=True):
    more, gradient = function(predictions, parts, whole)
    loss += more
    gradients.append(gradient)
  return (jnp.sum(loss * weights), jnp.sum(nll * weights)), predictions.probabilities, gradients
