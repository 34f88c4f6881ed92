"""The model's floating-point operations, by formula, and the peaks of some devices."""

from collections.abc import Sequence

from transformer.model.config import ModelConfig

# The share of a forward pass in the operations of an update: two of six for each weight.
_FORWARD = 1 / 3


def train_flops(config: ModelConfig, vocabulary_size: int, passes: int = 1,
                forwards: Sequence[ModelConfig] = ()) -> tuple[float, float]:
  """Returns the floating-point operations of an update, for each source and each target token.

  A multiply-add with a weight is two operations in the forward pass and four in the backward pass.
  Norms, softmax and the products of queries, keys and values are left out, so the numbers are
  lower bounds. Frozen parameters are counted as if they were trained. The keys and values of
  cross-attention belong to source tokens.

  Args:
    passes: how often an update passes a batch through the model.
    forwards: the shapes of other models, which take a forward pass each.
  """
  # Queries and output together have as many weights as keys and values.
  projections = config.model_dim * config.num_heads * (
      config.head_key_dim + config.head_value_dim)
  feed_forward = (3 if config.activation == 'swiglu' else 2) * config.model_dim * config.ff_dim
  encoder_layer = 2 * projections + feed_forward
  source = config.num_layers * encoder_layer + config.decoder_depth * projections
  target = (config.decoder_depth * (encoder_layer + projections)
            + config.model_dim * vocabulary_size)
  source, target = 6.0 * passes * source, 6.0 * passes * target
  for other in forwards:
    of_source, of_target = train_flops(other, vocabulary_size)
    source, target = source + _FORWARD * of_source, target + _FORWARD * of_target
  return source, target


def update_flops(config: ModelConfig, vocabulary_size: int, shape: tuple[int, int, int],
                 passes: int = 1, forwards: Sequence[ModelConfig] = ()) -> float:
  """Returns the floating-point operations of an update, attention's own products included.

  All positions count, padding and masked ones too, since the devices compute them. Norms and
  softmax are left out, and so is what `remat` computes again. `shape` is the rows of a batch, and
  the source and target positions of a row; the others are as for `train_flops`.
  """
  rows, source_length, target_length = shape
  of_source, of_target = train_flops(config, vocabulary_size)
  # Q Kᵀ and the average of V have a product for each pair of positions, head and dim.
  pairs = (config.num_layers * source_length ** 2
           + config.decoder_depth * target_length * (target_length + source_length))
  attention = 6.0 * config.num_heads * (config.head_key_dim + config.head_value_dim) * pairs
  own = passes * rows * (of_source * source_length + of_target * target_length + attention)
  return own + _FORWARD * sum(update_flops(other, vocabulary_size, shape) for other in forwards)


# Dense 16-bit peaks of one device in FLOP/s, from data sheets, by JAX's `device_kind`.
_PEAKS = {
    'NVIDIA A100-SXM4-40GB': 312e12, 'NVIDIA A100-SXM4-80GB': 312e12,
    'NVIDIA H100 80GB HBM3': 989e12, 'NVIDIA H200': 989e12,
    'TPU v4': 275e12, 'TPU v5 lite': 197e12, 'TPU v5': 459e12, 'TPU v6 lite': 918e12}


def peak_flops(device_kind: str) -> float | None:
  """Returns the 16-bit peak of a kind of device in FLOP/s; None if it is not known."""
  return _PEAKS.get(device_kind)
