"""Analytic FLOP counts of the model, and the peak FLOP/s of some devices."""

from collections.abc import Sequence
from typing import Any

from transformer.model.config import ModelConfig

# The forward pass as a fraction of a training step: two of six FLOPs per weight.
_FORWARD = 1 / 3


def transformer_flops_per_token(
  config: ModelConfig,
  vocabulary_size: int,
  source_length: int = 0,
  target_length: int = 0,
) -> tuple[float, float]:
  """Returns the FLOPs of a Transformer training step per source token and per target token.

  A multiply-add with a weight is two FLOPs in the forward pass and four in the backward pass.
  Norms, softmax and recomputation by `remat` are not counted. Frozen parameters count as trained.
  The keys and values of cross-attention count for source tokens.

  Args:
    source_length, target_length: positions in a row, for the products of attention (queries × keys,
      weights × values), masked positions included; 0 omits these products.
  """
  # The query and output projections together have as many weights as the key and value projections.
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


def train_flops_per_token(
  model: Any,
  passes: int = 1,
  extra_models: Sequence[Any] = (),
  source_length: int = 0,
  target_length: int = 0,
) -> tuple[float, float] | None:
  """Returns the FLOPs of a training step per source and per target token; None if unknown.

  Args:
    model: a model whose method `flops` returns FLOPs as `transformer_flops_per_token` does.
      Without this method, the FLOPs are unknown.
    passes: number of times that a training step passes a batch through the model.
    extra_models: other models, one forward pass each.
    source_length, target_length: as for `transformer_flops_per_token`.
  """
  source = 0.0
  target = 0.0
  for factor, net in [(passes, model), *((_FORWARD, extra) for extra in extra_models)]:
    if getattr(net, 'flops', None) is None:
      return None
    of_source, of_target = net.flops(source_length, target_length)
    source += factor * of_source
    target += factor * of_target
  return source, target


# Dense 16-bit peak FLOP/s of one device, from data sheets, by JAX's `device_kind`.
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
  """Returns the 16-bit peak FLOP/s of a device kind; None if unknown."""
  return _PEAKS.get(device_kind)
