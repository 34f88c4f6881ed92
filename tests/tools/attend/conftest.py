"""Attention maps with random weights, for the tests of the page."""

import numpy as np
import pytest

from transformer.model.attention_weights import SentenceAttention
from transformer.tools.attend.page import attention_page

L, H = 2, 3  # The encoder has one more layer than the decoder.


def page_of(*maps, about=''):
  return attention_page(maps, about)


def made_up(source, target, seed=0):
  """A map with random weights; of every query, one key has much more than the others."""
  rng = np.random.default_rng(seed)

  def weights(rows, columns, causal=False, layers=L):
    values = rng.random((layers, H, rows, columns)) ** 3 * 0.1 + 1e-4
    keys = rng.integers(0, columns, values.shape[:3])
    if causal:
      keys = np.minimum(keys, np.arange(rows))
    np.put_along_axis(
      values, keys[..., None], rng.random(keys.shape)[..., None] + 1, axis=-1
    )
    if causal:
      values = np.tril(values)
    return (values / values.sum(-1, keepdims=True)).astype(np.float32)

  s, t = len(source) + 1, len(target) + 1
  return SentenceAttention(
    [*source, '</s>'],
    [*target, '</s>'],
    weights(s, s, layers=L + 1),
    weights(t, t, causal=True),
    weights(t, s),
  )


@pytest.fixture(scope='module')
def small():
  """A map in which pieces 1 and 2 of the source, and of the target 0 and 1, are a word."""
  return made_up(
    ['▁the', '▁ze', 'bra', '▁eats'],
    ['▁Ze', 'bras', '▁essen', '▁hier', '▁</b>', '▁viel'],
  )
