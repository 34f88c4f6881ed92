"""A model that is checked: how it is built, its parameters, and what the checks compute with it."""

import dataclasses
import functools
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.errors import UserError, type_and_message
from transformer.model.building import Model, build_model
from transformer.model.config import ModelConfig
from transformer.model.transformer import init_params
from transformer.ops import linear
from transformer.settings import freeze
from transformer.testing.rows import SOURCE_N, N
from transformer.testing.tolerance import rounding

_LAYERS = 2
_POSITIONS = 31
_WIDTHS = {'model_dim': 13, 'ff_dim': 17, 'num_heads': 3, 'key_dim': 7, 'value_dim': 11}
# The width of a head of a model of the user, which may need an even one.
_HEAD_DIM = 6


class Broken(AssertionError):
  """A model fails a check; the message is one sentence."""


def require(holds: Any, sentence: str):
  """Raises `Broken` with the sentence unless something holds."""
  if not holds:
    raise Broken(sentence)


@dataclasses.dataclass(frozen=True, eq=False)
class Subject:
  """A model that is checked.

  Attributes:
    build: builds the model, as a class of models does: (config, vocabulary_size,
      source_vocabulary_size) -> Flax module.
    config: the settings that it is built with, whose sizes are small.
  """

  build: Callable[[ModelConfig, int, int], Model]
  config: ModelConfig

  @functools.cached_property
  def model(self) -> Model:
    """The model, with vocabularies of N and, unless embeddings are shared, SOURCE_N tokens."""
    return self.build(self.config, N, N if self.config.share_embeddings else SOURCE_N)

  @functools.cached_property
  def params(self) -> Any:
    """Random parameters without zeros, so that one that is left out changes a result."""
    rng = np.random.default_rng(1)

    def changed(leaf):
      if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
      return leaf + jnp.asarray(0.1 * rng.normal(size=leaf.shape), leaf.dtype)

    initial = jax.jit(lambda: init_params(self.model, 3))()
    return jax.tree.map(changed, initial)

  def apply(self, *arguments, **options) -> Any:
    """Calls the model, or a method of it, with its parameters."""
    return self.model.apply({'params': self.params}, *arguments, **options)

  def log_probs(self, params, *inputs) -> jax.Array:
    """Returns the log-probabilities of the next tokens by teacher forcing, [B, T, N]."""
    x_BTD, output_ND = self.model.apply({'params': params}, *inputs, deterministic=True)
    return jax.nn.log_softmax(linear.logits(x_BTD, output_ND))

  @functools.cached_property
  def forward(self) -> Callable[..., jax.Array]:
    """`log_probs`, compiled, with `params`."""
    return functools.partial(jax.jit(self.log_probs), self.params)

  def with_config(self, **changes) -> 'Subject':
    """Returns the same model with other settings."""
    return dataclasses.replace(self, config=dataclasses.replace(self.config, **changes))

  @functools.cached_property
  def shallow(self) -> 'Subject':
    """The same model with one layer in each stack, for what takes long to compile."""
    return self.with_config(
      num_layers=1, decoder_layers=self.config.decoder_layers and 1
    )

  def near(self, got, wanted) -> bool:
    """Returns whether rounding in float32 explains the difference of two results.

    A number on its way to a result passes the layers of both stacks. In each, the sums of
    attention and the feed-forward network have as many terms as the widths and the positions. A
    norm or a softmax may magnify a rounding, by up to ten.
    """
    config = self.config
    layers = config.num_layers + config.decoder_depth
    widths = 4 * config.model_dim + config.ff_dim + 2 * N
    size = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    allowed = rounding(terms=layers * widths, size=10 * size)
    got = np.asarray(got, np.float64)
    difference = np.abs(got - np.asarray(wanted, np.float64))
    return bool(np.all(difference <= allowed))


def small(config: ModelConfig) -> ModelConfig:
  """Returns the settings of a model in float32, with few layers and small widths.

  A model of the user may tie widths to heads, and its own settings to their number. So its heads
  stay, and `model_dim` is a multiple of them.
  """
  config = config.with_dtype('float32')
  changes = {
    'num_layers': min(_LAYERS, config.num_layers),
    'max_positions': _POSITIONS,
    'decoder_layers': config.decoder_layers and min(_LAYERS, config.decoder_layers),
  }
  if config.module:
    heads = config.num_heads
    changes |= {'model_dim': _HEAD_DIM * heads, 'ff_dim': _WIDTHS['ff_dim']}
    changes |= {
      name: min(_HEAD_DIM, getattr(config, name))
      for name in ('key_dim', 'value_dim')
      if getattr(config, name)
    }
  else:
    changes |= _WIDTHS
    if config.positions == 'rotary':
      changes['key_dim'] = _HEAD_DIM
  return dataclasses.replace(config, **changes)


def subject_of(config: ModelConfig) -> Subject:
  """Returns the model of a config with small sizes.

  Raises:
    UserError: `model.module` cannot be imported, or it is no model.
  """

  def build(config, vocabulary_size, source_vocabulary_size):
    vocabulary = SimpleNamespace(
      target=SimpleNamespace(size=vocabulary_size),
      source=SimpleNamespace(size=source_vocabulary_size),
    )
    return build_model(config, vocabulary)

  subject = Subject(build, small(config))
  # It is built now, so that an error comes before all checks.
  assert subject.model is not None
  return subject


def read(text: str) -> Subject:
  """Returns the model of a MODULE:CLASS, or of the settings of `config.model` as JSON.

  Raises:
    UserError: the settings are wrong, or the model cannot be built.
  """
  settings = {'module': text}
  if text.startswith('{'):
    try:
      settings = json.loads(text)
    except ValueError as error:
      raise UserError(
        f'TESTED_MODEL must be MODULE:CLASS, or settings of config.model as JSON: '
        f'{type_and_message(error)}'
      ) from error
  return subject_of(freeze(ModelConfig, settings, 'model.'))
