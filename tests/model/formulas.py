"""The model's formulas for a single sentence pair without segments, or for several of one size.

They take float64 arrays of NumPy, which `exact` makes, or of JAX, which differentiates them.
"""

import math

import jax
import numpy as np

from transformer.ops.positions import relative_buckets, sinusoidal_positions


def exact(tree):
  """Returns arrays as NumPy's in float64."""
  return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def softmax(x):
  xp = x.__array_namespace__()
  weights = xp.exp(x - x.max(-1, keepdims=True))
  return weights / weights.sum(-1, keepdims=True)


def layer_norm(x, p):
  """Returns layer norm with parameters p, or RMS norm if they have no bias."""
  if 'bias' in p:
    x = x - x.mean(-1, keepdims=True)
  return x / ((x**2).mean(-1, keepdims=True) + 1e-6) ** 0.5 * p['scale'] + p.get(
    'bias', 0.0
  )


def heads_of(p, name, x):
  """Returns the queries, keys or values of every head, [..., H, K]."""
  xp = x.__array_namespace__()
  return xp.einsum('...D,DHK->...HK', x, p[name]['kernel']) + p[name].get('bias', 0.0)


def join_heads(q, k, v, p, bias=0.0):
  """Returns attention with its output projection; a bias of −∞ is a mask."""
  xp = q.__array_namespace__()
  weights = softmax(
    xp.einsum('...THK,...SHK->...HTS', q, k) / q.shape[-1] ** 0.5 + bias
  )
  heads = xp.einsum('...HTS,...SHV->...THV', weights, v)
  return xp.einsum('...THV,HVD->...TD', heads, p['output']['kernel']) + p['output'].get(
    'bias', 0.0
  )


def rotate(x):
  """Rotates [T, H, K] by positions 0, 1, …, with pairs of dims as complex numbers."""
  length, _, dim = x.shape[-3:]
  angles = np.arange(length)[:, None, None] / 10_000 ** (np.arange(0, dim, 2) / dim)
  pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
  return np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape)


def attention(config, p, x, y, bias=0.0, *, own):
  """Returns attention from x to y; rotary positions are for self-attention, `own`, alone."""
  q, k, v = heads_of(p, 'query', x), heads_of(p, 'key', y), heads_of(p, 'value', y)
  if config.query_key_norm:
    q, k = layer_norm(q, p['query_norm']), layer_norm(k, p['key_norm'])
  if own and config.positions == 'rotary':
    q, k = rotate(q), rotate(k)
  return join_heads(q, k, v, p, bias)


def feed_forward(config, p, x):
  h = x @ p['inner']['kernel'] + p['inner'].get('bias', 0.0)
  if config.activation == 'relu':
    h = h * (h > 0)
  elif config.activation == 'gelu':
    h = h * (1 + np.vectorize(math.erf)(h / 2**0.5)) / 2
  else:
    h = (
      h
      / (1 + np.exp(-h))
      * (x @ p['gate']['kernel'] if config.activation == 'swiglu' else 1)
    )
  return h @ p['outer']['kernel'] + p['outer'].get('bias', 0.0)


def block(config, p, x, memory=None, bias=0.0, memory_bias=0.0):
  """Applies an encoder layer, or a decoder layer if `memory` is the encoded source."""
  sublayers = {
    'self_attention': lambda h: attention(
      config, p['self_attention'], h, h, bias, own=True
    ),
    'cross_attention': lambda h: attention(
      config, p['cross_attention'], h, memory, memory_bias, own=False
    ),
    'feed_forward': lambda h: feed_forward(config, p['feed_forward'], h),
  }
  if memory is None:
    del sublayers['cross_attention']
  for name, sublayer in sublayers.items():
    norm = p[f'{name}_residual']['layer_norm']
    if config.norm_position == 'pre':
      x = x + sublayer(layer_norm(x, norm))
    else:
      x = layer_norm(x + sublayer(x), norm)
  return x


def stack(config, params, name, x, source_bias=0.0, *memory):
  """Applies the encoder or the decoder, by name, to embedded tokens [T, D]."""
  length = x.shape[-2]
  bias = source_bias if name == 'encoder' else np.where(np.tri(length), 0.0, -np.inf)
  if config.positions == 'relative':
    distances = np.arange(length)[None, :] - np.arange(length)[:, None]
    buckets = np.asarray(relative_buckets(distances, bidirectional=name == 'encoder'))
    bias = bias + np.moveaxis(params[f'{name}_bias']['table'][buckets], -1, 0)
  for number in range(config.num_layers):
    x = block(
      config, params[f'{name}_{number}'], x, *memory, bias=bias, memory_bias=source_bias
    )
  return layer_norm(x, params[f'{name}_norm']) if config.norm_position == 'pre' else x


def embed(config, params, side, tokens):
  """Returns the embeddings of a source or target times √d, plus positions."""
  table = params[
    'target_embedding' if config.share_embeddings else f'{side}_embedding'
  ]['table']
  x, length = table[tokens] * config.model_dim**0.5, tokens.shape[-1]
  if config.positions == 'sinusoidal':
    x = x + np.asarray(sinusoidal_positions(length, config.model_dim))
  elif config.positions == 'learned':
    x = x + params[f'{side}_position']['table'][:length]
  return x


def outputs(config, params, source, inputs, source_bias=0.0):
  """Maps source tokens [S] and shifted target tokens [T] to the decoder's output [T, D].

  A `source_bias` of −∞ is a mask of the keys of the source.
  """
  memory = stack(
    config, params, 'encoder', embed(config, params, 'source', source), source_bias
  )
  return stack(
    config,
    params,
    'decoder',
    embed(config, params, 'target', inputs),
    source_bias,
    memory,
  )


def transformer(config, params, source, inputs, source_bias=0.0):
  """Maps source tokens [S] and shifted target tokens [T] to logits [T, N]: figure 1."""
  x = outputs(config, params, source, inputs, source_bias)
  table = params['target_embedding']['table'] if config.tie_output else params['output']
  return x @ table.T + params.get('output_bias', 0.0)
