"""The training loss, as sums and weights; the caller divides once, at the end."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer.ops import linear

# Positions in a chunk. A device holds the logits of one chunk at a time. Smaller chunks read the
# output projection from memory too often. Larger ones do not fit into a CPU's cache, or fill an
# accelerator's memory.
_CHUNK_POSITIONS = 256
_ACCELERATOR_CHUNK_POSITIONS = 4096


class LossOptions(NamedTuple):
  """The terms of the loss, as Python numbers.

  Attributes:
    smoothing: ε of label smoothing, at least 0 and below 1.
    consistency: α of R-Drop (Liang et al., 2021, equation 4), at least 0. Above 0, rows 2i and
      2i + 1 are twins: the same targets and weights, after two passes with different dropout. Each
      position adds α / 4 · (KL(p‖q) + KL(q‖p)) to the loss, where p is its softmax and q that of
      its twin. The paper's loss is the sum for both twins.
    teacher_share: λ of distillation (Kim and Rush, 2016, section 3.1), at least 0 and at most 1.
      The loss is 1 − λ of the cross entropy against the smoothed target, and λ of that against the
      mean of the teachers' distributions.
    temperature: τ of distillation (Hinton et al., 2015, section 2), above 0. It divides the logits
      of the teachers and of the student, and λ's term is multiplied by τ².
    devices: number of devices that the rows are split over; it sets the chunk size.
  """

  smoothing: float = 0.0
  consistency: float = 0.0
  teacher_share: float = 0.0
  temperature: float = 1.0
  devices: int = 1


# Cross entropy without any other term.
PLAIN = LossOptions()


def smoothed_cross_entropy(x_BTD, output_ND, targets_BT, weights_BT, options=PLAIN, teachers=()):
  """Cross entropy of a linear output layer against label-smoothed targets and against teachers.

  The target distribution is (1 − ε) on the right token plus ε / N on every token
  of the vocabulary, the right one included (section 5.4; Szegedy et al., 2016,
  section 7). Logits, softmax and both gradients are computed for one chunk of positions after
  another. The whole [B, T, N] array never exists: moving it through memory would cost more
  than computing it. Forward differentiation is as `transformer.ops` describes.

  Args:
    x_BTD: the decoder's output.
    output_ND: the output projection; logits are x · outputᵀ, float32.
    targets_BT: integer token ids.
    weights_BT: numbers or booleans, the weight of each position; 0 for padding.
    options: as `LossOptions` describes.
    teachers: for each teacher its decoder's output [B, T, D'] and its output projection [N, D'].
      D' may differ. They get no gradient.

  Returns:
    A dict of float32 scalars:

    - `loss`: weighted sum of all terms of the loss in nats, differentiable in `x_BTD` and
      `output_ND`,
    - `nll`: weighted sum of plain cross entropies without a gradient; perplexity is
      exp(nll / weight),
    - `weight`: sum of the weights.

  Raises:
    ValueError: an option is out of range, a row has no twin, or there is a share for teachers
      without teachers.
  """
  if not 0.0 <= options.smoothing < 1.0:
    raise ValueError(f'label smoothing must be at least 0 and below 1; got {options.smoothing}')
  if options.consistency < 0.0:
    raise ValueError(f'consistency must be at least 0; got {options.consistency}')
  if options.consistency and x_BTD.shape[0] % 2:
    raise ValueError(f'with consistency every row needs a twin; got {x_BTD.shape[0]} rows')
  if not 0.0 <= options.teacher_share <= 1.0:
    raise ValueError(f'the share of teachers must be at least 0 and at most 1; got '
                     f'{options.teacher_share}')
  if not 0.0 < options.temperature < math.inf:
    raise ValueError(f'the temperature must be above 0 and finite; got {options.temperature}')
  if bool(options.teacher_share) != bool(teachers):
    raise ValueError(f'teachers need a share above 0, and a share needs teachers; got '
                     f'{len(teachers)} teachers and the share {options.teacher_share}')
  weights_BT = weights_BT.astype(jnp.float32)
  loss, nll = _summed_losses(options, x_BTD, output_ND, targets_BT, weights_BT, tuple(teachers))
  return {'loss': loss, 'nll': nll, 'weight': jnp.sum(weights_BT)}


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _summed_losses(options, *arrays):
  """Returns the weighted sums `loss` and `nll`."""
  return _by_platform(functools.partial(_sums, options), options.devices, *arrays)


def _summed_losses_forward(options, *arrays):
  """Returns the sums, and the gradients of `loss`, from the same logits."""
  return _by_platform(functools.partial(_sums_and_gradients, options), options.devices, *arrays)


def _summed_losses_backward(options, gradients, cotangents):
  del options
  gradient_BTD, gradient_ND = gradients
  cotangent, _ = cotangents
  return ((gradient_BTD * cotangent).astype(gradient_BTD.dtype),
          (gradient_ND * cotangent).astype(gradient_ND.dtype), None, None, None)


_summed_losses.defvjp(_summed_losses_forward, _summed_losses_backward)


def _by_platform(function, devices, *arrays):
  """Calls function(positions in a chunk, *arrays) with the chunk size for the platform."""
  return jax.lax.platform_dependent(
      *arrays, cpu=functools.partial(function, _CHUNK_POSITIONS * devices),
      default=functools.partial(function, _ACCELERATOR_CHUNK_POSITIONS * devices))


def _sums(options, positions, x_BTD, output_ND, targets_BT, weights_BT, teachers):
  """Returns the weighted sums `loss` and `nll` over all chunks."""
  def add_chunk(sums, chunk):
    losses, *_ = _chunk_losses(options, output_ND, outputs, *chunk)
    return jax.tree.map(jnp.add, sums, losses), None

  teacher_x, outputs = _unzip(teachers)
  sums, _ = jax.lax.scan(add_chunk, (jnp.float32(0), jnp.float32(0)),
                         _chunks(positions, x_BTD, targets_BT, weights_BT, *teacher_x))
  return sums


def _sums_and_gradients(options, positions, x_BTD, output_ND, targets_BT, weights_BT, teachers):
  """Returns the weighted sums, and the gradients of `loss`."""
  smoothing, vocabulary = options.smoothing, output_ND.shape[0]

  def add_chunk(carry, chunk):
    sums, gradient_DN = carry
    x, targets, weights, *_ = chunk
    losses, probabilities, more = _chunk_losses(options, output_ND, outputs, *chunk)
    is_target = jax.nn.one_hot(targets, vocabulary, dtype=jnp.bool_)
    wanted = jnp.where(is_target, 1.0 - smoothing + smoothing / vocabulary,
                       smoothing / vocabulary)
    error = probabilities - wanted
    if options.teacher_share:
      error *= 1.0 - options.teacher_share
    for gradient in more:
      error += gradient
    error = (error * weights[..., None]).astype(x.dtype)
    gradient_x = jnp.einsum('...N,ND->...D', error, output_ND.astype(x.dtype))
    # [D, N], not [N, D], so that XLA transposes the smaller factor.
    gradient_DN += jnp.einsum('BTD,BTN->DN', x, error, preferred_element_type=jnp.float32)
    return (jax.tree.map(jnp.add, sums, losses), gradient_DN), gradient_x

  teacher_x, outputs = _unzip(teachers)
  start = (jnp.float32(0), jnp.float32(0)), jnp.zeros(output_ND.shape[::-1], jnp.float32)
  (sums, gradient_DN), gradient_x = jax.lax.scan(
      add_chunk, start, _chunks(positions, x_BTD, targets_BT, weights_BT, *teacher_x))
  gradient_BTD = jax.lax.collapse(jnp.moveaxis(gradient_x, 0, 1), 1, 3)[:, :x_BTD.shape[1]]
  # Without the barrier, XLA makes one 16-bit product of a single chunk and its transposition,
  # which a CPU cannot run.
  gradient_ND = jax.lax.optimization_barrier(gradient_DN).T
  return sums, (gradient_BTD, gradient_ND.astype(output_ND.dtype))


def _chunk_losses(options, output_ND, teacher_outputs, x, targets, weights, *teacher_x):
  """Returns (loss, nll) summed over a chunk, the softmax, and the gradients of the other terms."""
  logits = linear.logits(x, output_ND)
  peak = jnp.max(logits, axis=-1, keepdims=True)
  exponentials = jnp.exp(logits - peak)
  total = jnp.sum(exponentials, axis=-1, keepdims=True)
  log_normaliser = (peak + jnp.log(total))[..., 0]
  nll = log_normaliser - jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
  loss = nll
  if options.smoothing:
    loss = ((1.0 - options.smoothing) * nll
            + options.smoothing * (log_normaliser - jnp.mean(logits, axis=-1)))
  probabilities, more = exponentials / total, []
  if options.teacher_share:
    distance, gradient = _teacher_distance(logits, teacher_x, teacher_outputs,
                                           options.temperature)
    loss = (1.0 - options.teacher_share) * loss + options.teacher_share * distance
    more.append(options.teacher_share * gradient)
  if options.consistency:
    distance, gradient = _twin_distance(logits - log_normaliser[..., None], probabilities)
    loss += options.consistency / 4.0 * distance
    more.append(options.consistency / 2.0 * gradient)
  return (jnp.sum(loss * weights), jnp.sum(nll * weights)), probabilities, more


def _teacher_distance(logits, teacher_x, outputs, temperature):
  """Returns τ² · cross entropy against the teachers' mean, and its gradient by the logits."""
  log_probs = jax.nn.log_softmax(logits / temperature)
  wanted = sum(jax.nn.softmax(linear.logits(x, output_ND) / temperature)
               for x, output_ND in zip(teacher_x, outputs, strict=True)) / len(outputs)
  distance = -temperature ** 2 * jnp.sum(wanted * log_probs, axis=-1)
  return distance, temperature * (jnp.exp(log_probs) - wanted)


def _unzip(teachers):
  """Returns the decoders' outputs of all teachers, and their projections."""
  return [x for x, _ in teachers], [output for _, output in teachers]


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


def _chunks(positions, x_BTD, targets_BT, weights_BT, *teacher_x):
  """Cuts the position axis of all rows into chunks, which a new first axis numbers.

  A chunk has positions of every row, because rows may be on different devices. Positions of
  weight 0 fill the last chunk. Without rows or positions, there is one empty chunk.
  """
  rows, length = targets_BT.shape
  count = max(-(-length // max(positions // max(rows, 1), 1)), 1)
  size = -(-length // count)

  def cut(array):
    padding = [(0, 0), (0, count * size - length)] + [(0, 0)] * (array.ndim - 2)
    padded = jnp.pad(array, padding)
    return jnp.moveaxis(padded.reshape(rows, count, size, *array.shape[2:]), 1, 0)

  return tuple(map(cut, (x_BTD, targets_BT, weights_BT, *teacher_x)))
