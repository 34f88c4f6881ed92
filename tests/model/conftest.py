"""Tiny Transformers, compiled once, and packed rows for them; sizes are distinct primes."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.data.batch import BOS_ID, PAD_ID
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.ops import linear

B, H, W, K, V, D, F, S, T, MAX_POSITIONS, N = 2, 3, 5, 7, 11, 13, 17, 19, 23, 31, 37
SIZES = {
  'num_layers': 2,
  'model_dim': D,
  'ff_dim': F,
  'num_heads': H,
  'key_dim': K,
  'value_dim': V,
  'max_positions': MAX_POSITIONS,
  'dropout': 0.3,
}


def normal(*shape, seed=0):
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def minus_infinity_off(mask_BTS):
  """Returns the bias of `formulas` that is the mask."""
  return np.where(mask_BTS, 0.0, -np.inf)[:, None]


def randomized(variables):
  """Returns random values for all parameters, so that a missing one changes the output."""
  rng = np.random.default_rng(1)
  return jax.tree.map(
    lambda x: x + jnp.asarray(rng.normal(size=x.shape) * 0.3, x.dtype), variables
  )


class Tiny(NamedTuple):
  """A tiny model, its parameters without zeros, and two compiled functions."""

  model: Transformer
  params: dict
  forward: Callable  # (params, *batch) -> (decoder output, logits)
  encode: Callable  # (params, *source) -> encoder output


@functools.cache
def build(**overrides) -> Tiny:
  model = Transformer(ModelConfig(**SIZES | overrides), N)
  side = jnp.zeros((1, 2), jnp.int32)
  shapes = jax.eval_shape(model.init, jax.random.key(0), *[side] * 6)['params']
  rng = np.random.default_rng(0)

  def random(path, leaf):
    around = 1.0 if path[-1].key == 'scale' else 0.0
    return jnp.asarray(around + 0.3 * rng.normal(size=leaf.shape), leaf.dtype)

  params = jax.tree_util.tree_map_with_path(random, shapes)

  @jax.jit
  def forward(params, *batch):
    x_BTD, output_ND = model.apply({'params': params}, *batch)
    return x_BTD, linear.logits(x_BTD, output_ND)

  @jax.jit
  def encode(params, *source):
    return model.apply({'params': params}, *source, method='encode')

  return Tiny(model, params, forward, encode)


def pack(rows, source_length=S, target_length=T):
  """Packs rows of (source, target) token pairs into the six arrays that a Transformer takes."""
  shape = {'source': (len(rows), source_length), 'target': (len(rows), target_length)}
  sides = {
    side: [
      np.full(shape[side], PAD_ID, np.int32),
      np.zeros(shape[side], np.int32),
      np.zeros(shape[side], np.int32),
    ]
    for side in shape
  }
  for row, pairs in enumerate(rows):
    start = {'source': 0, 'target': 0}
    for segment, (source, target) in enumerate(pairs, 1):
      for side, ids in (('source', source), ('target', [BOS_ID, *target[:-1]])):
        place = slice(start[side], start[side] + len(ids))
        for array, values in zip(
          sides[side], (ids, segment, np.arange(len(ids))), strict=True
        ):
          array[row, place] = values
        start[side] = place.stop
  return *sides['source'], *sides['target']


def pair(source_length, target_length, seed):
  """Returns a random sentence pair."""
  rng = np.random.default_rng(seed)
  return rng.integers(4, N, source_length), rng.integers(4, N, target_length)


@pytest.fixture(scope='session')
def batch():
  """Two rows of two sentence pairs each, with padding at their ends."""
  return pack([[pair(5, 7, 0), pair(11, 13, 1)], [pair(7, 11, 2), pair(7, 5, 3)]])
