"""Model shapes and random tokens for comparing systems."""

import dataclasses
from typing import NamedTuple

import numpy as np

from transformer.data.batch import EOS_ID
from transformer.model.config import ModelConfig

# The lowest id that is not reserved.
_FIRST_TOKEN = 4


class Workload(NamedTuple):
  """A model shape, and the shape of a batch with equal numbers of source and target tokens.

  Attributes:
    model: the shape of the Transformer.
    vocabulary_size: number of tokens, N.
    rows: rows of a batch, B.
    length: source tokens in a row, and target tokens, S = T.
    label_smoothing: ε.
    sentences_a_row: pairs of equal length that this project packs into a row.
  """

  model: ModelConfig
  vocabulary_size: int
  rows: int
  length: int
  label_smoothing: float = 0.1
  sentences_a_row: int = 1

  def batch(self, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns random source and target ids, int32 [rows, length] each, without padding."""
    rng = np.random.default_rng(seed)
    source, target = rng.integers(
      _FIRST_TOKEN, self.vocabulary_size, (2, self.rows, self.length), np.int32
    )
    return source, target

  def sources(self) -> np.ndarray:
    """Returns the sources of `batch`, each with EOS as its last token."""
    source, _ = self.batch()
    source[:, -1] = EOS_ID
    return source

  def __str__(self) -> str:
    model = self.model
    return (
      f'{self.rows} rows of {self.length} + {self.length} tokens, vocabulary '
      f'{self.vocabulary_size:,}, d {model.model_dim}, ff {model.ff_dim}, '
      f'{model.num_layers} + {model.decoder_depth} layers, dropout {model.dropout}, label '
      f'smoothing {self.label_smoothing}, {model.dtype}'
    )


# PyTorch and CTranslate2 have biases in all attention projections; Flax's example has none.
_BASE = ModelConfig(attention_bias='all')
# Shapes of a training step on a CPU, by the size of the model.
ON_A_CPU = {
  'tiny': Workload(
    dataclasses.replace(_BASE, num_layers=4, model_dim=128, ff_dim=256, num_heads=4),
    8000,
    256,
    16,
  ),
  'base': Workload(_BASE, 32_000, 32, 64),
  'big': Workload(
    dataclasses.replace(_BASE, model_dim=1024, ff_dim=4096, num_heads=16),
    32_000,
    16,
    64,
  ),
}
# The same models on a GPU.
ON_A_GPU = {
  name: Workload(
    dataclasses.replace(work.model, dtype='bfloat16', attention='cudnn'),
    32_000,
    96,
    256,
    sentences_a_row=8,
  )
  for name, work in ON_A_CPU.items()
}
# Sentences to translate.
DECODING = Workload(_BASE, 32_000, 16, 32)
