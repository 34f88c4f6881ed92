"""A model that compiles at once, for tests of training steps and of the training loop."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from tests.tiny_training import VOCABULARY
from transformer.model.config import ModelConfig

_CONFIG = ModelConfig(num_layers=1, model_dim=10, ff_dim=14, num_heads=2)


@dataclasses.dataclass(frozen=True)
class Bigrams:
  """Predicts a token from the one before and the first of the source, with dropout.

  It has what training needs of the Transformer: `config`, `init` and `apply`.
  """

  rate: float = 0.2
  config: Any = _CONFIG
  vocabulary_size: int = VOCABULARY

  def init(self, key, *_):
    """Returns random parameters, named like the Transformer's."""
    dim = self.config.model_dim
    table, matrix = (
      jax.random.normal(jax.random.fold_in(key, number), (rows, dim)) / dim
      for number, rows in enumerate((VOCABULARY, dim))
    )
    return {
      'params': {
        'encoder_0': {'inner': {'kernel': matrix}},
        'target_embedding': {'table': table},
      }
    }

  def apply(
    self,
    variables,
    source_tokens,
    _,
    __,
    inputs,
    *___,
    deterministic=True,
    rngs=None,
    mutable=(),
  ):
    """Returns the decoder's output and the output projection, and no variables."""
    params = variables['params']
    table, kernel = (
      params['target_embedding']['table'],
      params['encoder_0']['inner']['kernel'],
    )
    x_BTD = table[inputs] + (table[source_tokens[:, :1]] @ kernel)
    if not deterministic:
      kept = jax.random.bernoulli(rngs['dropout'], 1 - self.rate, x_BTD.shape)
      x_BTD = jnp.where(kept, x_BTD / (1 - self.rate), 0)
    return ((x_BTD, table), {}) if mutable else (x_BTD, table)
