"""Random models whose translations depend on their sources, to compare with other libraries."""

import jax
import numpy as np

from transformer.data.batch import EOS_ID, PAD_ID
from transformer.training.step import init_params


def opinionated(model, strength=1.0, norms=1.0):
  """Returns parameters with more variance than trained ones, none of them zero or one.

  Args:
    model: the Transformer.
    strength: a factor of all standard deviations.
    norms: mean of the scales of the norms; those of trained models are often below one.
  """
  rng = np.random.default_rng(7)

  def draw(path, leaf):
    names = [each.key for each in path]
    # Sharp attention makes translations depend on their sources.
    looks = names[-2:-1] in (['query'], ['key'])
    wide = {'bias': 0.2, 'scale': 0.2}.get(names[-1], 1.0 if looks else 0.5)
    return np.asarray(norms * (names[-1] == 'scale') + strength * wide
                      * rng.standard_normal(leaf.shape), np.float32)

  params = jax.tree_util.tree_map_with_path(draw, jax.eval_shape(lambda: init_params(model, 0)))
  output = params['target_embedding']['table'] if model.config.tie_output else params['output']
  output[EOS_ID] *= 2  # Sentences end more often.
  return params


def padded(rows, length):
  """Returns token ids of rows [B, T], their segments and their positions."""
  tokens = np.full((len(rows), length), PAD_ID, np.int32)
  for tokens_T, row in zip(tokens, rows, strict=True):
    tokens_T[:len(row)] = row
  return tokens, (tokens != PAD_ID).astype(np.int32), np.tile(np.arange(length), (len(rows), 1))
