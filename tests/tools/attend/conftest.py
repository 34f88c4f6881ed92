"""Sentences with random attention, for the tests of the page."""

import numpy as np
import pytest

from transformer.model.attention_weights import AttentionWeights
from transformer.tools.attend.sentences import Sentence, Word

L, H = 2, 3  # The encoder has one more layer than the decoder.


def made_up(source, target, seed=0):
  """A sentence with random weights; of every query, one key has much more than the others."""
  rng = np.random.default_rng(seed)

  def weights(rows, columns, causal=False, layers=L):
    found = rng.random((layers, H, rows, columns)) ** 3 * 0.1 + 1e-4
    keys = rng.integers(0, columns, found.shape[:3])
    if causal:
      keys = np.minimum(keys, np.arange(rows))
    np.put_along_axis(found, keys[..., None], rng.random(keys.shape)[..., None] + 1, axis=-1)
    if causal:
      found = np.tril(found)
    return (found / found.sum(-1, keepdims=True)).astype(np.float32)

  def words(pieces):
    return [Word(piece.strip('▁'), i, i + 1) for i, piece in enumerate(pieces)]

  s, t = len(source), len(target)
  return Sentence(source, target, words(source), words(target), AttentionWeights(
      weights(s, s, layers=L + 1), weights(t, t, causal=True), weights(t, s)), False, False)


@pytest.fixture(scope='module')
def small():
  """A sentence in which pieces 1 and 2 of the source, and of the target 0 and 1, are a word."""
  found = made_up(['▁the', '▁ze', 'bra', '▁eats', '</s>'],
                  ['▁Ze', 'bras', '▁essen', '▁hier', '▁</b>', '▁viel', '</s>'])
  source, target = found.source_words, found.target_words
  return found._replace(
      source_words=[source[0], Word('zebra', 1, 3), *source[3:]],
      target_words=[Word('Zebras', 0, 2), *target[2:]])


@pytest.fixture(scope='module')
def long():
  return made_up([f'▁source{i}' for i in range(59)] + ['</s>'],
                 [f'▁übersetzt{i}' for i in range(60)] + ['</s>'], seed=1)
