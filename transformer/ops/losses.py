"""The training loss, as sums and weights that are divided once, at the end."""

import functools

import jax
import jax.numpy as jnp

# Positions whose logits exist at one time on a device. Fewer, and the output projection
# goes through memory more often than the logits would have; more, and the logits leave
# a CPU's cache before they are used again, or take an accelerator's memory.
_CHUNK_POSITIONS = 256
_ACCELERATOR_CHUNK_POSITIONS = 4096


def smoothed_cross_entropy(x_BTD, output_ND, targets_BT, weights_BT, smoothing=0.0,
                           consistency=0.0, devices=1):
  """Cross entropy of a linear output layer against label-smoothed targets.

  The target distribution is (1 − ε) on the right token plus ε / N on every token
  of the vocabulary, the right one included (section 5.4; Szegedy et al., 2016,
  section 7). Logits, their softmax and both gradients are made for a few
  positions at a time and used at once, so that the whole [B, T, N] array never
  exists: moving it through memory costs more than the arithmetic on it.

  Args:
    x_BTD: the decoder's output.
    output_ND: the output projection; logits are x · outputᵀ, float32.
    targets_BT: integer token ids.
    weights_BT: number or boolean, 0 where a position does not count.
    smoothing: ε, 0 ≤ ε < 1, a Python number.
    consistency: α of R-Drop (Liang et al., 2021, equation 4), a Python number. If it
      is above 0, rows 2i and 2i + 1 are twins: the same targets and weights, from two
      passes with dropouts of their own. Each position of a row adds
      α / 4 · (KL(p‖q) + KL(q‖p)) to the loss, p and q being its and its twin's
      softmax; half of the paper's loss, which is of both rows together.
    devices: that the rows are split over; it changes how many positions are taken at
      a time, and nothing else.

  Returns:
    A dict of float32 scalars: `loss`, the weighted sum of smoothed cross entropies
    in nats, differentiable in `x_BTD` and `output_ND`; `nll`, the same without
    smoothing, consistency and gradient, for perplexity = exp(nll / weight); and
    `weight`, the sum of weights.

  Raises:
    ValueError: ε or α is out of range, or there is a row without a twin.
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
  """The weighted sums of smoothed and of plain cross entropies."""
  return _by_platform(functools.partial(_sums, smoothing, consistency), devices,
                      x_BTD, output_ND, targets_BT, weights_BT)


def _summed_losses_forward(smoothing, consistency, devices, x_BTD, output_ND, targets_BT,
                           weights_BT):
  """The sums, and the gradients of the first of them, which are at hand while the logits are."""
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
  """function(positions at a time, arrays), for the platform that it is compiled for."""
  return jax.lax.platform_dependent(
      *arrays, cpu=functools.partial(function, _CHUNK_POSITIONS * devices),
      default=functools.partial(function, _ACCELERATOR_CHUNK_POSITIONS * devices))


def _sums(smoothing, consistency, positions, x_BTD, output_ND, targets_BT, weights_BT):
  """Of smoothed and of plain cross entropies."""
  def add_chunk(sums, chunk):
    losses, *_ = _chunk_losses(smoothing, consistency, output_ND, *chunk)
    return jax.tree.map(jnp.add, sums, losses), None

  sums, _ = jax.lax.scan(add_chunk, (jnp.float32(0), jnp.float32(0)),
                         _chunks(positions, x_BTD, targets_BT, weights_BT))
  return sums


def _sums_and_gradients(smoothing, consistency, positions, x_BTD, output_ND, targets_BT,
                        weights_BT):
  """The same, and the gradients of the first of them."""
  def add_chunk(carry, chunk):
    sums, gradient_DN = carry
    x, targets, weights = chunk
    losses, probabilities, pull = _chunk_losses(smoothing, consistency, output_ND, *chunk)
    vocabulary = output_ND.shape[0]
    is_target = jax.nn.one_hot(targets, vocabulary, dtype=jnp.bool_)
    wanted = jnp.where(is_target, 1.0 - smoothing + smoothing / vocabulary,
                       smoothing / vocabulary)
    error = probabilities - wanted
    if consistency:
      error += consistency / 2.0 * pull
    error = (error * weights[..., None]).astype(x.dtype)
    gradient_x = jnp.einsum('...N,ND->...D', error, output_ND.astype(x.dtype))
    # [D, N], not [N, D]: the smaller factor is the one that gets transposed.
    gradient_DN += jnp.einsum('BTD,BTN->DN', x, error, preferred_element_type=jnp.float32)
    return (jax.tree.map(jnp.add, sums, losses), gradient_DN), gradient_x

  start = (jnp.float32(0), jnp.float32(0)), jnp.zeros(output_ND.shape[::-1], jnp.float32)
  (sums, gradient_DN), gradient_x = jax.lax.scan(
      add_chunk, start, _chunks(positions, x_BTD, targets_BT, weights_BT))
  rows, length, dim = x_BTD.shape
  gradient_BTD = jnp.moveaxis(gradient_x, 0, 1).reshape(rows, -1, dim)[:, :length]
  # A CPU cannot run the 16-bit product that XLA makes of a single chunk and its transposition.
  gradient_ND = jax.lax.optimization_barrier(gradient_DN).T
  return sums, (gradient_BTD, gradient_ND.astype(output_ND.dtype))


def _chunk_losses(smoothing, consistency, output_ND, x, targets, weights):
  """Both sums over a chunk of positions, the softmax, and twins' pull on each other's logits."""
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
  probabilities, pull = exponentials / total, None
  if consistency:
    distance, pull = _twin_distance(logits - log_normaliser[..., None], probabilities)
    loss += consistency / 4.0 * distance
  return (jnp.sum(loss * weights), jnp.sum(nll * weights)), probabilities, pull


def _twin_distance(log_probs, probabilities):
  """KL(p‖q) + KL(q‖p) of rows that are neighbours, and its gradient in the logits of p.

  The first is symmetric, so that the gradient in the logits of q is the same
  formula, with the twins exchanged.
  """
  def twin(x):
    pairs = x.reshape(x.shape[0] // 2, 2, *x.shape[1:])
    return jnp.flip(pairs, axis=1).reshape(x.shape)

  difference = log_probs - twin(log_probs)
  to_twin = jnp.sum(probabilities * difference, axis=-1)
  pull = probabilities * (difference - to_twin[..., None]) + probabilities - twin(probabilities)
  return to_twin + twin(to_twin), pull


def _chunks(positions, x_BTD, targets_BT, weights_BT):
  """Cuts the positions, not the rows, which may lie on different devices: leading axis first.

  The last chunk is filled up with positions of no weight.
  """
  rows, length = targets_BT.shape
  count = -(-length // max(positions // rows, 1))
  size = -(-length // count)

  def cut(array):
    padding = [(0, 0), (0, count * size - length)] + [(0, 0)] * (array.ndim - 2)
    padded = jnp.pad(array, padding)
    return jnp.moveaxis(padded.reshape(rows, count, size, *array.shape[2:]), 1, 0)

  return cut(x_BTD), cut(targets_BT), cut(weights_BT)
