"""The Tiny model of configs/multi30k_tiny.py, with random parameters and sentences."""

import jax
import numpy as np

from configs import multi30k_tiny
from transformer.config import Config
from transformer.data.batch import EOS_ID, UNK_ID
from transformer.data.batches.training_batches import TrainingBatches, batch_shape
from transformer.data.encoding import EncodedPairs, Sentences
from transformer.model.transformer import Transformer, init_params

VOCABULARY = 7919
FULL = 590  # Number of pairs that fill one packed batch of the config.


def make_config(**changes) -> Config:
  """Returns the config with changes, such as `model__dropout=0.0`."""
  config = multi30k_tiny.get_config()
  config.update_from_flattened_dict(
    {name.replace('__', '.'): value for name, value in changes.items()}
  )
  return Config.from_dict(config.to_dict())


def random_params(model: Transformer):
  """Returns random parameters, in which no norm or bias is exactly 0 or 1."""
  rng = np.random.default_rng(11)

  def changed(path, leaf):
    spread = {'scale': 0.3, 'bias': 0.2}.get(path[-1].key, 0.0)
    return np.asarray(leaf) + spread * rng.normal(size=leaf.shape).astype(np.float32)

  return jax.tree_util.tree_map_with_path(
    changed, jax.jit(lambda: init_params(model, 1))()
  )


def random_pairs(
  count: int, longest: int, vocabulary: int = VOCABULARY, typical: int = 13
) -> EncodedPairs:
  """Returns sentence pairs with Multi30k's lengths, and with frequent and rare tokens."""
  rng = np.random.default_rng(12)
  sources = np.clip(rng.lognormal(np.log(typical), 0.4, count), 2, longest).astype(int)
  targets = np.clip(sources * rng.lognormal(0.0, 0.2, count), 2, longest).astype(int)

  def side(lengths):
    first = UNK_ID + 1
    return Sentences.from_lists(
      [
        *(first + (vocabulary - first) * rng.random(length - 1) ** 3).astype(int),
        EOS_ID,
      ]
      for length in lengths
    )

  return EncodedPairs(side(sources), side(targets), {})


def training_batches(config: Config, pairs: EncodedPairs) -> TrainingBatches:
  """Returns the batches of a run on these pairs."""
  shape = batch_shape(config.train.tokens_per_batch, config.data.max_length, [pairs])
  return TrainingBatches([pairs], [1.0], shape, config.seed)


def random_lines(count: int, seed: int) -> list[str]:
  """Returns sentences of an invented language, with frequent and rare words."""
  rng = np.random.default_rng(13)
  syllables = [
    a + b for a in 'bdfgklmnprstvz' for b in ('a', 'e', 'i', 'o', 'u', 'an', 'er', 'it')
  ]
  words = [''.join(rng.choice(syllables, rng.integers(1, 5))) for _ in range(9000)]
  rng = np.random.default_rng(seed)
  lengths = np.clip(rng.lognormal(np.log(11), 0.4, count), 2, 25).astype(int)
  return [
    ' '.join(words[int(len(words) * place**3)] for place in rng.random(length))
    for length in lengths
  ]


def pairs_of(
  batches: TrainingBatches, step: int
) -> list[tuple[np.ndarray, np.ndarray]]:
  """Returns the pairs of a step before packing."""
  (pairs,) = batches.corpora
  return [
    (pairs.source[number], pairs.target[number])
    for number in batches.packed_rows(step)[0].pairs
  ]
