"""The model's formulas in float64, for a single sentence pair without segments."""

import math

import jax
import numpy as np

from transformer.ops.positions import relative_buckets, sinusoidal_positions


def layer_norm(x, p):
  """Returns layer norm with parameters p, or RMS norm if they have no bias."""
  x = np.asarray(x, np.float64)
  if 'bias' in p:
    x = x - x.mean(-1, keepdims=True)
  normal_x = x / np.sqrt(np.mean(x ** 2, -1, keepdims=True) + 1e-6)
  return normal_x * np.asarray(p['scale']) + np.asarray(p.get('bias', 0.0))


def heads_of(p, name, x):
  """Returns the queries, keys or values of every head, [..., H, K]."""
  kernel, bias = (np.asarray(p[name].get(each, 0.0), np.float64) for each in ('kernel', 'bias'))
  return np.einsum('...D,DHK->...HK', np.asarray(x, np.float64), kernel) + bias


def join_heads(q, k, v, p, bias=0.0):
  """Returns attention with its output projection; a bias of −∞ is a mask."""
  scores = np.einsum('...THK,...SHK->...HTS', q, k) / np.sqrt(q.shape[-1]) + bias
  weights = np.exp(scores - scores.max(-1, keepdims=True))
  heads = np.einsum('...HTS,...SHV->...THV', weights / weights.sum(-1, keepdims=True), v)
  kernel, bias = (np.asarray(p['output'].get(each, 0.0), np.float64) for each in ('kernel', 'bias'))
  return np.einsum('...THV,HVD->...TD', heads, kernel) + bias


def rotate(x):
  """Rotates [T, H, K] by positions 0, 1, …, with pairs of dims as complex numbers."""
  length, _, dim = x.shape
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
  p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), p)
  h = x @ p['inner']['kernel'] + p['inner'].get('bias', 0.0)
  if config.activation == 'relu':
    h = np.maximum(h, 0.0)
  elif config.activation == 'gelu':
    h *= (1 + np.vectorize(math.erf)(h / np.sqrt(2))) / 2
  elif config.activation == 'silu':
    h /= 1 + np.exp(-h)
  else:
    h = h / (1 + np.exp(-h)) * (x @ p['gate']['kernel'])
  return h @ p['outer']['kernel'] + p['outer'].get('bias', 0.0)


def block(config, p, x, memory=None, bias=0.0, memory_bias=0.0):
  """Applies an encoder layer, or a decoder layer if `memory` is the encoded source."""
  sublayers = {
      'self_attention': lambda h: attention(config, p['self_attention'], h, h, bias, own=True),
      'cross_attention': lambda h: attention(config, p['cross_attention'], h, memory, memory_bias,
                                             own=False),
      'feed_forward': lambda h: feed_forward(config, p['feed_forward'], h)}
  if memory is None:
    del sublayers['cross_attention']
  x = np.asarray(x, np.float64)
  for name, sublayer in sublayers.items():
    norm = p[f'{name}_residual']['layer_norm']
    if config.norm == 'pre':
      x = x + sublayer(layer_norm(x, norm))
    else:
      x = layer_norm(x + sublayer(x), norm)
  return x


def stack(config, params, name, x, *memory):
  """Applies the encoder or the decoder, by name, to embedded tokens [T, D]."""
  length = len(x)
  bias = np.zeros((length, length))
  if config.positions == 'relative':
    distances = np.arange(length)[None, :] - np.arange(length)[:, None]
    buckets = np.asarray(relative_buckets(distances, bidirectional=name == 'encoder'))
    bias = np.moveaxis(np.asarray(params[f'{name}_bias']['table'])[buckets], -1, 0)
  if name == 'decoder':
    bias = np.where(np.tri(length), bias, -np.inf)
  for number in range(config.num_layers):
    x = block(config, params[f'{name}_{number}'], x, *memory, bias=bias)
  return layer_norm(x, params[f'{name}_norm']) if config.norm == 'pre' else x


def embed(config, params, side, tokens):
  """Returns the embeddings of a source or target times √d, plus positions."""
  table = params['target_embedding' if config.share_embeddings else f'{side}_embedding']['table']
  x = np.asarray(table, np.float64)[tokens] * np.sqrt(config.model_dim)
  if config.positions == 'sinusoidal':
    x += sinusoidal_positions(len(tokens), config.model_dim)
  elif config.positions == 'learned':
    x += np.asarray(params[f'{side}_position']['table'])[:len(tokens)]
  return x


def transformer(config, params, source, inputs):
  """Maps source tokens [S] and shifted target tokens [T] to logits [T, N]: figure 1."""
  memory = stack(config, params, 'encoder', embed(config, params, 'source', source))
  x = stack(config, params, 'decoder', embed(config, params, 'target', inputs), memory)
  table = params['target_embedding']['table'] if config.tie_output else params['output']
  return x @ np.asarray(table, np.float64).T + np.asarray(params.get('output_bias', 0), np.float64)
