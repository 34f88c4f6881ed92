"""Builds the model of `config.model`, and defines the interface of a model.

A model is a Flax module. It is built as CLASS(config, vocabulary_size, source_vocabulary_size),
with the settings of `model.module` as keyword arguments. It has a field `config`, and these
methods:

- `__call__(tokens_BS, segments_BS, positions_BS, inputs_BT, segments_BT, positions_BT, *,
  deterministic)` runs teacher forcing on packed rows. It returns the decoder output [B, T, D] and
  the output projection [N, D], whose product is the logits.
- `start(tokens_BS, segments_BS, positions_BS, beams)` starts a search. It returns two pytrees of
  `ops.search.StateArray`s: the initial decoder state, and the source arrays, constant over steps.
- `step(tokens_BW, index, state, source)` takes the latest token of each hypothesis, its position,
  and the arrays of both pytrees. It returns float32 logits [B, W, N] and the arrays of the new
  state.

Optional:

- `encode(tokens_BS, segments_BS, positions_BS, *, deterministic=True)` returns the encoded source
  [B, S, D], for the Python API of a run.
- `layer_logits(x_BTD)` maps the output of a decoder layer to logits, also for the Python API.
- `search_params(params)` returns the parameters for `start` and `step`, such as matrices rounded
  once instead of at every step.
- `flops(source_length, target_length)` returns FLOPs as `flops.transformer_flops_per_token`
  does. Without it, no FLOPs are reported.
- `sharding_rules` is a mapping such as `SHARDING_RULES`. Without it, parameters are replicated.
- A scalar sown into the collection `losses` is added to the training loss of each token, and
  logged as `train/NAME`. Scalars with the same name are summed.
"""

import dataclasses
from typing import Any

import flax.linen as nn

from transformer import plugins
from transformer.errors import UserError, short_repr
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.ops.fused_attention import missing_for_fused_attention

# The type of a model, for code outside of this package.
Model = nn.Module


def build_model(config: ModelConfig, vocabulary: Any) -> Model:
  """Returns the model of `config` for a `RunVocabulary`.

  If the default device does not support cuDNN attention, the model uses the reference attention.

  Raises:
    UserError: `model.module` or `model.attention` cannot be imported, or `model.module` is not a
      valid model.
  """
  sizes = vocabulary.target.size, vocabulary.source.size
  if config.attention == 'cudnn' and missing_for_fused_attention(config.head_key_dim):
    config = dataclasses.replace(config, attention='reference')
  if ':' in config.attention:
    plugins.load(config.attention, 'attention')
  if not config.module:
    return Transformer(config, *sizes)
  spec = plugins.name_of(config.module)
  model = plugins.build(config.module, 'model', config, *sizes)
  if not isinstance(model, nn.Module):
    raise UserError(
      f'the model {spec} must be a class of Flax modules; got {short_repr(model)}'
    )
  check_methods(model, 'start', 'step')
  return model


def check_methods(model: Model, *methods: str):
  """Raises `UserError` if the model lacks one of `methods`."""
  missing = [name for name in methods if not callable(getattr(model, name, None))]
  if missing:
    spec = model.config.module or type(model).__name__
    raise UserError(
      f'the model {plugins.name_of(spec)} lacks {" and ".join(missing)}; '
      'transformer.model.building describes the methods of a model'
    )


def python_modules(model: Model) -> list[str]:
  """Returns the names of the Python modules of the model class and of its custom attention."""
  attention, colon, _ = model.config.attention.partition(':')
  return [type(model).__module__, *([attention] if colon else [])]
