"""A model of toy sentences, whose random translations differ."""

import dataclasses
import random

import jax

from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.config import DecodeOptions
from transformer.decoding.constraint import UNCONSTRAINED
from transformer.decoding.decoder_search import DecoderSearch, SearchInputs
from transformer.decoding.translator import Translator
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.ops.search import run_search
from transformer.testing.tolerance import rounding_tolerance

WORDS = [
  'the',
  'a',
  'cat',
  'dog',
  'house',
  'tree',
  'sees',
  'eats',
  'runs',
  'small',
  'green',
  'old',
  'under',
  'over',
  'and',
]
MAX_LENGTH = 29
DECODE = DecodeOptions(beam_size=3, alpha=0.6, max_extra_length=7, batch_size=5)
# What rounding may do to a log-probability of up to 36 tokens. On its way a number below 10 passes
# up to ten sublayers, whose sums have up to 36 terms each.
ROUNDING = 36 * rounding_tolerance(terms=10 * 36, size=10.0)


def make_vocabulary() -> Vocabulary:
  rng = random.Random(0)
  return Vocabulary.train((' '.join(rng.choices(WORDS, k=6)) for _ in range(300)), 290)


def make_model(vocabulary: Vocabulary, layers: int = 1) -> Transformer:
  config = ModelConfig(
    num_layers=layers, model_dim=14, ff_dim=22, num_heads=2, norm_position='pre'
  )
  return Transformer(config, vocabulary.size)


def make_params(model: Transformer, width: float = 1.5):
  """Returns random parameters large enough that no argmax is a near tie.

  Larger weights, in several layers, would amplify rounding errors about 100 times.
  """
  return jax.tree.map(
    lambda leaf: width * leaf, jax.jit(lambda: init_params(model, 5))()
  )


def sentences(count: int, seed: int = 1) -> list[str]:
  rng = random.Random(seed)
  return [' '.join(rng.choices(WORDS, k=rng.randint(1, 24))) for _ in range(count)]


def make_translator(models, vocabulary, decoding=DECODE, **options):
  """Returns a function (parameters, lines) -> translations by a model or several."""
  several = isinstance(models, (list, tuple))
  translator = Translator(
    tuple(models if several else [models]), vocabulary, MAX_LENGTH, **options
  )

  def translate(params, lines, offset=0, constraint=UNCONSTRAINED, seed=0):
    return translator(
      params if several else [params],
      lines,
      dataclasses.replace(decoding, seed=seed),
      offset=offset,
      constraint=constraint,
    )

  return translate


def whole_search(model: Transformer, decoding: DecodeOptions):
  """Returns a search as one program: (params, source_BS, limits_B, keys_B) -> `Hypotheses`."""
  search = DecoderSearch([model], decoding)

  def run(params, source_BS, limits_B, keys_B=None):
    states, sources = search.start([params], source_BS)
    inputs = SearchInputs(sources, limits_B, keys_B)
    most = source_BS.shape[1] + decoding.max_extra_length
    return run_search(search.build_search([params], inputs, states, most))

  return jax.jit(run)
