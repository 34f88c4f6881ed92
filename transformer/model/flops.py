"""The model's floating-point operations, by formula, and the peaks of some devices."""

from collections.abc import Sequence
from typing import Any

from transformer.model.config import ModelConfig

# The fraction of a forward pass in the operations of an update: two of six for each weight.
_FORWARD = 1 / 3


def train_flops(
  config: ModelConfig,
  vocabulary_size: int,
  source_length: int = 0,
  target_length: int = 0,
) -> tuple[float, float]:
  """Returns the Transformer's floating-point operations in an update, by token.

  They are those of a source token and of a target token.

  A multiply-add with a weight is two operations in the forward pass and four in the backward pass.
  Norms and softmax are left out, and so is what `remat` computes again. Frozen parameters are
  counted as if they were trained. The keys and values of cross-attention belong to source tokens.

  Args:
    source_length, target_length: positions in a row, for the products of queries, keys and values
      of attention, masked ones too; 0 leaves these products out.
  """
  # Queries and output together have as many weights as keys and values.
  head_dims = config.num_heads * (config.head_key_dim + config.head_value_dim)
  projections = config.model_dim * head_dims
  feed_forward = (
    (3 if config.activation == 'swiglu' else 2) * config.model_dim * config.ff_dim
  )
  encoder_layer = 2 * projections + feed_forward
  source = config.num_layers * (encoder_layer + head_dims * source_length)
  source += config.decoder_depth * projections
  target = config.decoder_depth * (
    encoder_layer + projections + head_dims * (source_length + target_length)
  )
  target += config.model_dim * vocabulary_size
  return 6.0 * source, 6.0 * target


def update_flops(
  model: Any,
  passes: int = 1,
  extra_models: Sequence[Any] = (),
  source_length: int = 0,
  target_length: int = 0,
) -> tuple[float, float] | None:
  """Returns the operations of an update for a source and a target token; None if not known.

  Args:
    model: a model, whose method `flops` returns what `train_flops` does. Without it, the
      operations are not known.
    passes: how often an update passes a batch through the model.
    extra_models: other models, which take a forward pass each.
    source_length, target_length: as for `train_flops`.
  """
  source = 0.0
  target = 0.0
  for factor, each in [(passes, model), *((_FORWARD, other) for other in extra_models)]:
    if getattr(each, 'flops', None) is None:
      return None
    of_source, of_target = each.flops(source_length, target_length)
    source += factor * of_source
    target += factor * of_target
  return source, target


# Dense 16-bit peaks of one device in FLOP/s, from data sheets, by JAX's `device_kind`.
_PEAKS = {
  'NVIDIA A100-SXM4-40GB': 312e12,
  'NVIDIA A100-SXM4-80GB': 312e12,
  'NVIDIA H100 80GB HBM3': 989e12,
  'NVIDIA H200': 989e12,
  'TPU v4': 275e12,
  'TPU v5 lite': 197e12,
  'TPU v5': 459e12,
  'TPU v6 lite': 918e12,
}


def peak_flops(device_kind: str) -> float | None:
  """Returns the 16-bit peak of a kind of device in FLOP/s; None if it is not known."""
  return _PEAKS.get(device_kind)
