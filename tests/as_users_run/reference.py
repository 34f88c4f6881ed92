"""The Transformer's loss and gradients in float64 NumPy, without any code of the project.

All formulas of the paper are here, with derivatives by hand. Each sentence pair has its own row,
so there is no packing, and masks follow from the lengths alone.

Each layer is a function that returns its output and a function `back`. `back` takes the gradient of
the output, adds to the gradients of the layer's parameters, and returns the gradient of the input.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

_BEGIN = 1
_EPSILON = 1e-6  # ε of layer norm.
_POSITIONS = 1500  # The most source or target positions in one computation.

Pair = tuple[Sequence[int], Sequence[int]]


class Node(NamedTuple):
  """A parameter and its gradient, or nested dicts of parameters and gradients."""

  value: Any
  gradient: Any

  def __getitem__(self, name):
    return Node(self.value[name], self.gradient[name])


class Losses(NamedTuple):
  """Sums over the tokens of all pairs, and the number of tokens."""

  loss: float
  nll: float
  tokens: int


def loss_and_gradients(params, pairs: Sequence[Pair], smoothing: float, *, heads: int, norm: str):
  """Returns the label-smoothed cross entropy (section 5.4), summed over all target tokens.

  Args:
    params: nested dicts of arrays with the project's names of parameters; embeddings and output
      share one table.
    pairs: source and target ids, each with its end token.
    smoothing: ε.
    heads: number of heads.
    norm: `post` or `pre`.

  Returns:
    `Losses`, and the gradients of the smoothed sum in the structure of the parameters.
  """
  root = _root(params)
  table, loss, nll, tokens = root['target_embedding']['table'], 0.0, 0.0, 0
  for source, target, _ in _padded(pairs):
    x, back = _transformer(root, source, target, heads, norm)
    real = target > 0
    x_real, wanted = x[real], target[real]
    log_probs = _log_softmax(x_real @ table.value.T)
    size = log_probs.shape[-1]
    chosen = log_probs[np.arange(len(wanted)), wanted]
    nll -= chosen.sum()
    loss -= ((1 - smoothing) * chosen + smoothing / size * log_probs.sum(-1)).sum()
    tokens += len(wanted)
    d_logits = np.exp(log_probs) - smoothing / size
    d_logits[np.arange(len(wanted)), wanted] -= 1 - smoothing
    table.gradient[...] += d_logits.T @ x_real
    d_x = np.zeros_like(x)
    d_x[real] = d_logits @ table.value
    back(d_x)
  return Losses(loss, nll, tokens), root.gradient


def log_probs_of(params, pairs: Sequence[Pair], *, heads: int, norm: str) -> list[np.ndarray]:
  """Returns log-probabilities of target tokens and of the likeliest tokens, by teacher forcing.

  Args:
    params, pairs, heads, norm: as in `loss_and_gradients`.

  Returns:
    For each pair an array [2, tokens]: log-probabilities of its target tokens, and of the
    likeliest token at each position.
  """
  root, found = _root(params), [np.zeros((2, 0))] * len(pairs)
  for source, target, numbers in _padded(pairs):
    x, _ = _transformer(root, source, target, heads, norm)
    for row, number in enumerate(numbers):
      wanted = target[row][target[row] > 0]
      log_probs = _log_softmax(x[row, :len(wanted)] @ root['target_embedding']['table'].value.T)
      found[number] = np.stack([log_probs[np.arange(len(wanted)), wanted], log_probs.max(-1)])
  return found


def outputs_of(params, pairs: Sequence[Pair], *, heads: int, norm: str) -> np.ndarray:
  """Returns the decoder's output at all target tokens, [tokens, D], in any order."""
  root = _root(params)
  return np.concatenate([_transformer(root, source, target, heads, norm)[0][target > 0]
                         for source, target, _ in _padded(pairs)])


def _root(params) -> Node:
  def mapped(function, tree):
    if isinstance(tree, dict):
      return {name: mapped(function, each) for name, each in tree.items()}
    return function(np.asarray(tree, np.float64))

  return Node(mapped(lambda leaf: leaf, params), mapped(np.zeros_like, params))


def _padded(pairs) -> Iterator[tuple[np.ndarray, np.ndarray, list[int]]]:
  """Yields padded sources and targets of similar lengths, and the numbers of their pairs."""
  order = sorted(range(len(pairs)), key=lambda i: (len(pairs[i][1]), len(pairs[i][0])))
  while order:
    several = max(1, _POSITIONS // max(map(len, pairs[order[-1]])))
    order, numbers = order[:-several], order[-several:]
    sides = []
    for side in (0, 1):
      sentences = [pairs[number][side] for number in numbers]
      sides.append(np.zeros((len(numbers), max(map(len, sentences))), np.int64))
      for row, sentence in zip(sides[-1], sentences, strict=True):
        row[:len(sentence)] = sentence
    yield *sides, numbers


def _transformer(root: Node, source, target, heads, norm) -> tuple[np.ndarray, Callable]:
  """Returns the decoder's output before the output projection, and `back`."""
  layers = sum(name.startswith('decoder_') and name != 'decoder_norm' for name in root.value)
  real = (source > 0)[:, None, :]
  inputs = np.pad(target, ((0, 0), (1, 0)), constant_values=_BEGIN)[:, :-1]
  causal = np.tril(np.ones((target.shape[1],) * 2, bool))[None]
  d_memory = 0.0
  backs = []

  def through(x, name, sublayer):
    x, back = _residual(x, sublayer, root[name[0]][f'{name[1]}_residual']['layer_norm'], norm)
    backs.append(back)
    return x

  def attend_to_source(x, weights):
    y, back_both = _attention(x, memory, weights, heads, real)

    def back(d):
      nonlocal d_memory
      d_x, d_here = back_both(d)
      d_memory = d_memory + d_here
      return d_x

    return y, back

  def attend_to_itself(x, weights, mask):
    y, back = _attention(x, x, weights, heads, mask)
    return y, lambda d: sum(back(d))

  x, back_source = _embedding(root, source)
  for number in range(layers):
    name = f'encoder_{number}'
    layer = root[name]
    x = through(x, (name, 'self_attention'),
                lambda h, at=layer: attend_to_itself(h, at['self_attention'], real))
    x = through(x, (name, 'feed_forward'),
                lambda h, at=layer: _feed_forward(h, at['feed_forward']))
  if norm == 'pre':
    x, back = _layer_norm(x, root['encoder_norm'])
    backs.append(back)
  memory, backs_of_encoder = x, backs[::-1]
  backs.clear()

  x, back_target = _embedding(root, inputs)
  for number in range(layers):
    name = f'decoder_{number}'
    layer = root[name]
    x = through(x, (name, 'self_attention'),
                lambda h, at=layer: attend_to_itself(h, at['self_attention'], causal))
    x = through(x, (name, 'cross_attention'),
                lambda h, at=layer: attend_to_source(h, at['cross_attention']))
    x = through(x, (name, 'feed_forward'),
                lambda h, at=layer: _feed_forward(h, at['feed_forward']))
  if norm == 'pre':
    x, back = _layer_norm(x, root['decoder_norm'])
    backs.append(back)

  def back_all(d):
    for back in reversed(backs):
      d = back(d)
    back_target(d)
    d = d_memory
    for back in backs_of_encoder:
      d = back(d)
    back_source(d)

  return x, back_all


def _embedding(root, tokens):
  """Returns rows of the table times √d (section 3.4), plus sinusoids (section 3.5)."""
  table = root['target_embedding']['table']
  width = table.value.shape[1]
  places, dims = np.arange(tokens.shape[1])[:, None], np.arange(width)
  angles = places / 10_000.0 ** (2 * (dims // 2) / width)
  positions = np.where(dims % 2, np.cos(angles), np.sin(angles))

  def back(d):
    np.add.at(table.gradient, tokens, math.sqrt(width) * d)

  return math.sqrt(width) * table.value[tokens] + positions, back


def _residual(x, sublayer, weights, norm):
  """LayerNorm(x + Sublayer(x)), section 3.1; or x + Sublayer(LayerNorm(x))."""
  if norm == 'pre':
    h, back_norm = _layer_norm(x, weights)
    y, back_sublayer = sublayer(h)
    return x + y, lambda d: d + back_norm(back_sublayer(d))
  y, back_sublayer = sublayer(x)
  z, back_norm = _layer_norm(x + y, weights)

  def back(d):
    d = back_norm(d)
    return d + back_sublayer(d)

  return z, back


def _layer_norm(x, weights):
  """(x − mean) / √(variance + ε) · scale + bias, over the last axis: Ba et al., 2016."""
  centred = x - x.mean(-1, keepdims=True)
  deviation = np.sqrt((centred ** 2).mean(-1, keepdims=True) + _EPSILON)
  n = centred / deviation

  def back(d):
    axes = tuple(range(d.ndim - 1))
    weights['scale'].gradient[...] += (d * n).sum(axes)
    weights['bias'].gradient[...] += d.sum(axes)
    d = d * weights['scale'].value
    return (d - d.mean(-1, keepdims=True) - n * (d * n).mean(-1, keepdims=True)) / deviation

  return n * weights['scale'].value + weights['bias'].value, back


def _affine(x, weights):
  """x W + b, with the axes of heads as one axis."""
  kernel, bias = weights['kernel'], weights['bias']
  matrix = kernel.value.reshape(x.shape[-1], -1)

  def back(d):
    flat = d.reshape(-1, d.shape[-1])
    kernel.gradient[...] += (x.reshape(-1, x.shape[-1]).T @ flat).reshape(kernel.value.shape)
    bias.gradient[...] += flat.sum(0).reshape(bias.value.shape)
    return d @ matrix.T

  return x @ matrix + bias.value.reshape(-1), back


def _feed_forward(x, weights):
  """max(0, x W₁ + b₁) W₂ + b₂: section 3.3."""
  h, back_inner = _affine(x, weights['inner'])
  y, back_outer = _affine(np.maximum(h, 0.0), weights['outer'])
  return y, lambda d: back_inner(back_outer(d) * (h > 0))


def _attention(x, memory, weights, heads, mask):
  """Multi-head attention: section 3.2.2. `back` returns the gradients of x and of memory."""
  def split(y):
    return y.reshape(*y.shape[:2], heads, -1).swapaxes(1, 2)

  def join(y):
    return y.swapaxes(1, 2).reshape(y.shape[0], y.shape[2], -1)

  (q, back_q), (k, back_k), (v, back_v) = (
      _affine(each, weights[name]) for each, name in ((x, 'query'), (memory, 'key'),
                                                      (memory, 'value')))
  q, k, v = split(q), split(k), split(v)
  scale = 1 / math.sqrt(q.shape[-1])
  weight = np.exp(_log_softmax(np.where(mask[:, None], scale * q @ k.swapaxes(-1, -2), -np.inf)))
  y, back_output = _affine(join(weight @ v), weights['output'])

  def back(d):
    d = split(back_output(d))
    d_weight = d @ v.swapaxes(-1, -2)
    d_scores = scale * weight * (d_weight - (weight * d_weight).sum(-1, keepdims=True))
    return (back_q(join(d_scores @ k)),
            back_k(join(d_scores.swapaxes(-1, -2) @ q)) + back_v(join(weight.swapaxes(-1, -2) @ d)))

  return y, back


def _log_softmax(scores):
  scores = scores - scores.max(-1, keepdims=True)
  return scores - np.log(np.exp(scores).sum(-1, keepdims=True))
