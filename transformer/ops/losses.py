"""The training loss, as sums and weights; the caller divides once, at the end."""

import functools

import jax
import jax.numpy as jnp

# Positions in a chunk. A device holds the logits of one chunk at a time. Smaller chunks read the
# output projection from memory too often. Larger ones do not fit into a CPU's cache, or fill an
# accelerator's memory.
_CHUNK_POSITIONS = 256
_ACCELERATOR_CHUNK_POSITIONS = 4096


def smoothed_cross_entropy(x_BTD, output_ND, targets_BT, weights_BT, smoothing=0.0,
                           consistency=0.0, devices=1):
  """Cross entropy of a linear output layer against label-smoothed targets.

  The target distribution is (1 − ε) on the right token plus ε / N on every token
  of the vocabulary, the right one included (section 5.4; Szegedy et al., 2016,
  section 7). Logits, softmax and both gradients are computed for one chunk of positions after
  another. The whole [B, T, N] array never exists: moving it through memory would cost more
  than computing it.

  Args:
    x_BTD: the decoder's output.
    output_ND: the output projection; logits are x · outputᵀ, float32.
    targets_BT: integer token ids.
    weights_BT: numbers or booleans, the weight of each position; 0 for padding.
    smoothing: ε, 0 ≤ ε < 1, a Python number.
    consistency: α of R-Drop (Liang et al., 2021, equation 4), a Python number. Above 0, rows
      2i and 2i + 1 are twins: the same targets and weights, after two passes with
      different dropout. Each position adds α / 4 · (KL(p‖q) + KL(q‖p)) to the loss, where
      p is its softmax and q that of its twin. The paper's loss is the sum for both twins.
    devices: number of devices that the rows are split over; it sets the chunk size.

  Returns:
    A dict of float32 scalars:

    - `loss`: weighted sum of smoothed cross entropies and consistency in nats,
      differentiable in `x_BTD` and `output_ND`,
    - `nll`: weighted sum of plain cross entropies without a gradient; perplexity is
      exp(nll / weight),
    - `weight`: sum of the weights.

  Raises:
    ValueError: ε or α is out of range, or a row has no twin.
  """
  if not 0.0 <= smoothing < 1.0:
    raise ValueError(f'label smoothing must be at least 0 and below 1; got {smoothing}')
  if consistency < 0.0:
    raise ValueError(f'consistency must be at least 0; got {consistency}')
  if consistency and x_BTD.shape[0] % 2:
    raise ValueError(f'with consistency every row needs a twin; got {x_BTD.shape[0]} rows')
  weights_BT = weights_BT.astype(jnp.float32)
  loss, nll = _summed_losses(smoothing, consistency, devices, x_BTD, output_ND, targets_BT,
                             weights_BT)
  return {'loss': loss, 'nll': nll, 'weight': jnp.sum(weights_BT)}


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _summed_losses(smoothing, consistency, devices, x_BTD, output_ND, targets_BT, weights_BT):
  """Returns the weighted sums `loss` and `nll`."""
  return _by_platform(functools.partial(_sums, smoothing, consistency), devices,
                      x_BTD, output_ND, targets_BT, weights_BT)


def _summed_losses_forward(smoothing, consistency, devices, x_BTD, output_ND, targets_BT,
                           weights_BT):
  """Returns the sums, and the gradients of `loss`, from the same logits."""
  return _by_platform(functools.partial(_sums_and_gradients, smoothing, consistency), devices,
                      x_BTD, output_ND, targets_BT, weights_BT)


def _summed_losses_backward(smoothing, consistency, devices, gradients, cotangents):
  del smoothing, consistency, devices
  gradient_BTD, gradient_ND = gradients
  cotangent, _ = cotangents
  return ((gradient_BTD * cotangent).astype(gradient_BTD.dtype),
          (gradient_ND * cotangent).astype(gradient_ND.dtype), None, None)


_summed_losses.defvjp(_summed_losses_forward, _summed_losses_backward)


def _by_platform(function, devices, *arrays):
  """Calls function(positions in a chunk, *arrays) with the chunk size for the platform."""
  return jax.lax.platform_dependent(
      *arrays, cpu=functools.partial(function, _CHUNK_POSITIONS * devices),
      default=functools.partial(function, _ACCELERATOR_CHUNK_POSITIONS * devices))


def _sums(smoothing, consistency, positions, x_BTD, output_ND, targets_BT, weights_BT):
  """Returns the weighted sums `loss` and `nll` over all chunks."""
  def add_chunk(sums, chunk):
    losses, *_ = _chunk_losses(smoothing, consistency, output_ND, *chunk)
    return jax.tree.map(jnp.add, sums, losses), None

  sums, _ = jax.lax.scan(add_chunk, (jnp.float32(0), jnp.float32(0)),
                         _chunks(positions, x_BTD, targets_BT, weights_BT))
  return sums


def _sums_and_gradients(smoothing, consistency, positions, x_BTD, output_ND, targets_BT,
                        weights_BT):
  """Returns the weighted sums, and the gradients of `loss`."""
  def add_chunk(carry, chunk):
    sums, gradient_DN = carry
    x, targets, weights = chunk
    losses, probabilities, twin_gradient = _chunk_losses(smoothing, consistency, output_ND, *chunk)
    vocabulary = output_ND.shape[0]
    is_target = jax.nn.one_hot(targets, vocabulary, dtype=jnp.bool_)
    wanted = jnp.where(is_target, 1.0 - smoothing + smoothing / vocabulary,
                       smoothing / vocabulary)
    error = probabilities - wanted
    if consistency:
      error += consistency / 2.0 * twin_gradient
    error = (error * weights[..., None]).astype(x.dtype)
    gradient_x = jnp.einsum('...N,ND->...D', error, output_ND.astype(x.dtype))
    # [D, N], not [N, D], so that XLA transposes the smaller factor.
    gradient_DN += jnp.einsum('BTD,BTN->DN', x, error, preferred_element_type=jnp.float32)
    return (jax.tree.map(jnp.add, sums, losses), gradient_DN), gradient_x

  start = (jnp.float32(0), jnp.float32(0)), jnp.zeros(output_ND.shape[::-1], jnp.float32)
  (sums, gradient_DN), gradient_x = jax.lax.scan(
      add_chunk, start, _chunks(positions, x_BTD, targets_BT, weights_BT))
  rows, length, dim = x_BTD.shape
  gradient_BTD = jnp.moveaxis(gradient_x, 0, 1).reshape(rows, -1, dim)[:, :length]
  # Without the barrier, XLA makes one 16-bit product of a single chunk and its transposition,
  # which a CPU cannot run.
  gradient_ND = jax.lax.optimization_barrier(gradient_DN).T
  return sums, (gradient_BTD, gradient_ND.astype(output_ND.dtype))


def _chunk_losses(smoothing, consistency, output_ND, x, targets, weights):
  """Returns (loss, nll) summed over a chunk, the softmax, and the gradient of the distance."""
  logits = jnp.einsum('...D,ND->...N', x, output_ND.astype(x.dtype),
                      preferred_element_type=jnp.float32)
  peak = jnp.max(logits, axis=-1, keepdims=True)
  exponentials = jnp.exp(logits - peak)
  total = jnp.sum(exponentials, axis=-1, keepdims=True)
  log_normaliser = (peak + jnp.log(total))[..., 0]
  nll = log_normaliser - jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
  loss = nll
  if smoothing:
    loss = (1.0 - smoothing) * nll + smoothing * (log_normaliser - jnp.mean(logits, axis=-1))
  probabilities, twin_gradient = exponentials / total, None
  if consistency:
    distance, twin_gradient = _twin_distance(logits - log_normaliser[..., None], probabilities)
    loss += consistency / 4.0 * distance
  return (jnp.sum(loss * weights), jnp.sum(nll * weights)), probabilities, twin_gradient


def _twin_distance(log_probs, probabilities):
  """Returns KL(p‖q) + KL(q‖p) for each row p and its twin q, and the gradient by p's logits."""
  def twin(x):
    pairs = x.reshape(x.shape[0] // 2, 2, *x.shape[1:])
    return jnp.flip(pairs, axis=1).reshape(x.shape)

  difference = log_probs - twin(log_probs)
  to_twin = jnp.sum(probabilities * difference, axis=-1)
  twin_gradient = (probabilities * (difference - to_twin[..., None])
                   + probabilities - twin(probabilities))
  return to_twin + twin(to_twin), twin_gradient


def _chunks(positions, x_BTD, targets_BT, weights_BT):
  """Cuts the position axis of all rows into chunks, which a new first axis numbers.

  A chunk has positions of every row, because rows may be on different devices. Positions of
  weight 0 fill the last chunk.
  """
  rows, length = targets_BT.shape
  count = -(-length // max(positions // rows, 1))
  size = -(-length // count)

  def cut(array):
    padding = [(0, 0), (0, count * size - length)] + [(0, 0)] * (array.ndim - 2)
    padded = jnp.pad(array, padding)
    return jnp.moveaxis(padded.reshape(rows, count, size, *array.shape[2:]), 1, 0)

  return cut(x_BTD), cut(targets_BT), cut(weights_BT)
