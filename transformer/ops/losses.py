"""The training loss as sums and weights; the caller divides once, at the end."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from transformer.ops import linear
from transformer.ops.axes import split_axis

# Positions per chunk. A device holds the logits of one chunk at a time. Smaller chunks read the
# output projection from memory too often. Larger chunks exceed the cache of a CPU or the memory of
# an accelerator.
_CHUNK_POSITIONS = 256
_ACCELERATOR_CHUNK_POSITIONS = 4096


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def token_losses(logits_BTN, targets_BT, smoothing=0.0) -> tuple[jax.Array, jax.Array]:
  """Returns the label-smoothed and the plain cross entropy of each position, [B, T] each.

  The target distribution is (1 − ε) on the correct token plus ε / N on every token of the
  vocabulary, the correct one included (section 5.4; Szegedy et al., 2016, section 7). Only the
  label-smoothed cross entropy is differentiable, with respect to the logits.
  """
  return _token_losses(logits_BTN, targets_BT, smoothing)[0]


def _token_losses(logits, targets, smoothing):
  peak, total, logits_sum = jax.lax.platform_dependent(
    logits, cuda=softmax_sums_in_one_pass, default=softmax_sums
  )
  log_normalizer = peak + jnp.log(total)
  nll = (
    log_normalizer - jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
  )
  loss = nll
  if smoothing:
    uniform = log_normalizer - logits_sum / logits.shape[-1]
    loss = (1.0 - smoothing) * nll + smoothing * uniform
  return (loss, nll), (jnp.exp(logits - peak[..., None]) / total[..., None], targets)


def softmax_sums(logits_BTN) -> tuple:
  """Returns the maximum m of each position, the sum of exp(logits − m), and the sum of logits."""
  peak_BT = jnp.max(logits_BTN, axis=-1)
  exponentials_BTN = jnp.exp(logits_BTN - peak_BT[..., None])
  return peak_BT, jnp.sum(exponentials_BTN, axis=-1), jnp.sum(logits_BTN, axis=-1)


@jax.custom_jvp
def softmax_sums_in_one_pass(logits_BTN) -> tuple:
  """Computes `softmax_sums` in a single reduction, so that a GPU reads the logits once."""
  lowest = jnp.array(jnp.finfo(logits_BTN.dtype).min)
  zero = jnp.zeros_like(lowest)
  # Combining two groups whose maximum is -inf would yield NaN.
  peaks = jnp.maximum(logits_BTN, lowest)
  return jax.lax.reduce(
    (peaks, jnp.ones_like(peaks), logits_BTN),
    (lowest, zero, zero),
    _combine,
    [logits_BTN.ndim - 1],
  )


def _combine(left, right):
  """Combines the maxima and sums of two groups of logits."""
  left_peak, left_total, left_sum = left
  right_peak, right_total, right_sum = right
  peak = jnp.maximum(left_peak, right_peak)
  left_total *= jnp.exp(left_peak - peak)
  right_total *= jnp.exp(right_peak - peak)
  return peak, left_total + right_total, left_sum + right_sum


# JAX cannot transpose the derivative of `_combine`, so differentiate `softmax_sums` instead.
softmax_sums_in_one_pass.defjvp(functools.partial(jax.jvp, softmax_sums))


def _token_losses_backward(smoothing, residuals, cotangents):
  probabilities, targets = residuals
  vocabulary = probabilities.shape[-1]
  is_target = jax.nn.one_hot(targets, vocabulary, dtype=jnp.bool_)
  target_probabilities = jnp.where(
    is_target, 1.0 - smoothing + smoothing / vocabulary, smoothing / vocabulary
  )
  return (probabilities - target_probabilities) * cotangents[0][..., None], None


token_losses.defvjp(_token_losses, _token_losses_backward)


def smoothed_cross_entropy(
  x_BTD, output_ND, targets_BT, weights_BT, smoothing=0.0, *, num_row_shards=1
) -> dict[str, jax.Array]:
  """Returns the label-smoothed cross entropy of a linear output layer, as `chunked_loss` does.

  Args:
    targets_BT: integer token ids.
    smoothing: ε of label smoothing, at least 0 and below 1.
    x_BTD, output_ND, weights_BT, num_row_shards: as for `chunked_loss`.
  """

  def function(logits, targets, _):
    return token_losses(logits, targets, smoothing)

  return chunked_loss(
    function, x_BTD, output_ND, weights_BT, targets_BT, num_row_shards=num_row_shards
  )


def chunked_loss(
  function: Callable,
  x_BTD,
  output_ND,
  weights_BT,
  by_position,
  shared_arrays=(),
  *,
  num_row_shards=1,
) -> dict[str, jax.Array]:
  """Sums a loss over chunks of positions, and computes the logits of one chunk at a time.

  Both gradients are computed together with the loss. The full [B, T, N] array is never
  materialized: moving it through memory would cost more than computing it. For forward-mode
  differentiation, see `transformer.ops`.

  Args:
    function: called with the logits of a chunk, float32 [B, C, N], its slice of `by_position`, and
      `shared_arrays`. Returns the loss and the plain cross entropy of each position, [B, C].
    x_BTD, output_ND: logits are x · outputᵀ.
    weights_BT: numbers or booleans, the weight of each position; 0 for padding.
    by_position: a pytree of arrays [B, T, ...], such as the targets; no gradient.
    shared_arrays: a pytree of arrays passed to every chunk; no gradient.
    num_row_shards: number of shards that the rows are split into; scales the chunk size.

  Returns:
    A dict of float32 scalars: `loss`, the weighted sum in nats, differentiable in `x_BTD` and
    `output_ND`; `nll`, the weighted sum of plain cross entropies without a gradient, so that
    perplexity is exp(nll / weight); and `weight`, the sum of the weights.
  """
  weights_BT = weights_BT.astype(jnp.float32)
  by_position = (weights_BT, by_position)
  loss, nll = _sums(
    (function, num_row_shards), x_BTD, output_ND, by_position, shared_arrays
  )
  return {'loss': loss, 'nll': nll, 'weight': jnp.sum(weights_BT)}


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _sums(options, *arrays):
  """Returns the weighted sums `loss` and `nll`; XLA eliminates the unused gradients."""
  return _sums_and_gradients(options, *arrays)[0]


def _sums_and_gradients(options, *arrays):
  """Returns the sums, and the gradients of `loss`; both use the same logits."""
  function, num_row_shards = options
  return jax.lax.platform_dependent(
    *arrays,
    cpu=functools.partial(_by_chunks, function, _CHUNK_POSITIONS * num_row_shards),
    default=functools.partial(
      _by_chunks, function, _ACCELERATOR_CHUNK_POSITIONS * num_row_shards
    ),
  )


def _backward(_, gradients, cotangents):
  cotangent, _ = cotangents
  scaled = [(gradient * cotangent).astype(gradient.dtype) for gradient in gradients]
  return (*scaled, None, None)


_sums.defvjp(_sums_and_gradients, _backward)


def _chunks(positions, arrays):
  """Splits the position axis of arrays [B, T, ...] into chunks, along a new first axis.

  Each chunk has positions of every row, because rows may be on different devices. The last chunk is
  padded with positions of weight 0. Without rows or positions, there is one empty chunk.
  """
  rows, length = arrays[0].shape[:2]
  count = max(-(-length // max(positions // max(rows, 1), 1)), 1)
  size = -(-length // count)
  return jax.tree.map(lambda array: split_axis(array, 1, count, size), arrays)


def _by_chunks(function, positions, x_BTD, output_ND, by_position, shared_arrays):
  projection_ND = output_ND.astype(x_BTD.dtype)  # Once, not per chunk.

  def add_chunk(carry, chunk):
    (loss_sum, nll_sum), gradient_DN = carry
    x, (weights, arrays) = chunk
    logits = linear.logits(x, projection_ND)
    loss, gradient_of, nll = jax.vjp(
      lambda y: function(y, arrays, shared_arrays), logits, has_aux=True
    )
    error = gradient_of(weights)[0].astype(x.dtype)
    gradient_x = jnp.einsum('...N,ND->...D', error, projection_ND)
    # [D, N], not [N, D], so that XLA transposes the smaller factor.
    gradient_DN += jnp.einsum(
      'BTD,BTN->DN', x, error, preferred_element_type=jnp.float32
    )
    sums = loss_sum + jnp.sum(loss * weights), nll_sum + jnp.sum(nll * weights)
    return (sums, gradient_DN), gradient_x

  start = (
    (jnp.float32(0), jnp.float32(0)),
    jnp.zeros(output_ND.shape[::-1], jnp.float32),
  )
  chunks = _chunks(positions, (x_BTD, by_position))
  (sums, gradient_DN), gradient_x = jax.lax.scan(add_chunk, start, chunks)
  gradient_BTD = jax.lax.collapse(jnp.moveaxis(gradient_x, 0, 1), 1, 3)[
    :, : x_BTD.shape[1]
  ]
  # With a single chunk and no barrier, XLA fuses product and transpose into a 16-bit product that
  # CPUs cannot run.
  gradient_ND = jax.lax.optimization_barrier(gradient_DN).T
  return sums, (gradient_BTD, gradient_ND.astype(output_ND.dtype))
