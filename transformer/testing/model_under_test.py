"""The model under test: its construction, parameters and outputs."""

import dataclasses
import functools
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config_fields import parse_config
from transformer.errors import UserError, type_and_message
from transformer.model.building import Model, build_model
from transformer.model.config import ModelConfig
from transformer.model.transformer import init_params
from transformer.ops import linear
from transformer.testing.random_batches import SOURCE_N, N
from transformer.testing.tolerance import rounding_tolerance

_LAYERS = 2
_POSITIONS = 31
_WIDTHS = {'model_dim': 13, 'ff_dim': 17, 'num_heads': 3, 'key_dim': 7, 'value_dim': 11}
# The width of a head of a custom model, which may require an even width.
_HEAD_DIM = 6


class CheckFailed(AssertionError):
  """A model fails a check; the message is one sentence."""


def require(condition: Any, message: str):
  """Raises `CheckFailed` with the message unless the condition holds."""
  if not condition:
    raise CheckFailed(message)


@dataclasses.dataclass(frozen=True, eq=False)
class ModelUnderTest:
  """A model under test.

  Attributes:
    build: builds the model, with the arguments of a model class: (config, vocabulary_size,
      source_vocabulary_size) -> Flax module.
    config: the config of the model, with small sizes.
  """

  build: Callable[[ModelConfig, int, int], Model]
  config: ModelConfig

  @functools.cached_property
  def model(self) -> Model:
    """The model; N target tokens, and SOURCE_N source tokens unless embeddings are shared."""
    return self.build(self.config, N, N if self.config.share_embeddings else SOURCE_N)

  @functools.cached_property
  def params(self) -> Any:
    """Random parameters without zeros, so that an unused parameter changes a result."""
    rng = np.random.default_rng(1)

    def changed(leaf):
      if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
      return leaf + jnp.asarray(0.1 * rng.normal(size=leaf.shape), leaf.dtype)

    initial = jax.jit(lambda: init_params(self.model, 3))()
    return jax.tree.map(changed, initial)

  def apply(self, *arguments, **options) -> Any:
    """Calls the model, or one of its methods, with its parameters."""
    return self.model.apply({'params': self.params}, *arguments, **options)

  def log_probs(self, params, *inputs) -> jax.Array:
    """Returns the next-token log-probabilities by teacher forcing, [B, T, N]."""
    x_BTD, output_ND = self.model.apply({'params': params}, *inputs, deterministic=True)
    return jax.nn.log_softmax(linear.logits(x_BTD, output_ND))

  @functools.cached_property
  def forward(self) -> Callable[..., jax.Array]:
    """`log_probs` with `params`, compiled."""
    return functools.partial(jax.jit(self.log_probs), self.params)

  def with_config(self, **changes) -> 'ModelUnderTest':
    """Returns the same model with different settings."""
    return dataclasses.replace(self, config=dataclasses.replace(self.config, **changes))

  @functools.cached_property
  def shallow(self) -> 'ModelUnderTest':
    """The same model with one layer per stack, for checks that take long to compile."""
    return self.with_config(
      num_layers=1, decoder_layers=self.config.decoder_layers and 1
    )

  def is_close(self, actual, expected) -> bool:
    """Returns whether float32 rounding explains the difference between two results.

    The tolerance counts the terms of consecutive sums over all layers of both stacks: in each
    layer, widths, and the size of the vocabulary as a bound of the positions. It also allows for
    norms and softmax, which may amplify a rounding error by up to ten.
    """
    config = self.config
    layers = config.num_layers + config.decoder_depth
    widths = 4 * config.model_dim + config.ff_dim + 2 * N
    size = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    tolerance = rounding_tolerance(terms=layers * widths, size=10 * size)
    actual = np.asarray(actual, np.float64)
    difference = np.abs(actual - np.asarray(expected, np.float64))
    return bool(np.all(difference <= tolerance))


def shrink(config: ModelConfig) -> ModelConfig:
  """Returns the config in float32, with few layers and small widths.

  The widths of a custom model may depend on its heads, and its settings on the number of heads. So
  a custom model keeps its number of heads, and `model_dim` is a multiple of it.
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


def describe(config: ModelConfig) -> str:
  """Returns a line with the model and the settings that differ from the defaults."""
  defaults = ModelConfig(module=config.module)
  changed = [
    f'{field.name}={getattr(config, field.name)}'
    for field in dataclasses.fields(config)
    if getattr(config, field.name) != getattr(defaults, field.name)
  ]
  name = config.module or "this project's Transformer"
  return f'checking {name} with {", ".join(changed)}'


def model_under_test_of(config: ModelConfig) -> ModelUnderTest:
  """Returns the model of a config, with small sizes.

  Raises:
    UserError: `model.module` cannot be imported, or is not a model.
  """

  def build(config, vocabulary_size, source_vocabulary_size):
    vocabulary = SimpleNamespace(
      target=SimpleNamespace(size=vocabulary_size),
      source=SimpleNamespace(size=source_vocabulary_size),
    )
    return build_model(config, vocabulary)

  subject = ModelUnderTest(build, shrink(config))
  # Build the model now, so that errors are raised before any check.
  assert subject.model is not None
  return subject


def load(text: str) -> ModelUnderTest:
  """Returns the model named by MODULE:CLASS, or by settings of `config.model` as JSON.

  Raises:
    UserError: the settings are invalid, or the model cannot be built.
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
  return model_under_test_of(parse_config(ModelConfig, settings, 'model.'))
