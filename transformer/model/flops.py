"""How much arithmetic the model asks for, counted by hand."""

from transformer.model.config import ModelConfig


def train_flops(config: ModelConfig, vocabulary_size: int) -> tuple[float, float]:
  """Floating-point operations that an update needs for a source token, and for a target token.

  Two for every multiply-add of a weight matrix, and twice as many again for the
  backward pass. The products inside attention, which depend on the lengths of
  sentences, norms and softmax are left out, so a utilisation that is computed
  from this is never flattered.

  Args:
    config: the model's shape.
    vocabulary_size: number of tokens, N.

  Returns:
    Operations for a source token, cross-attention's keys and values included, and
    for a target token, the output projection included.
  """
  # Queries and the output take as many weights as keys and values do.
  projections = config.model_dim * config.num_heads * (
      config.head_key_dim + config.head_value_dim)
  feed_forward = (3 if config.activation == 'swiglu' else 2) * config.model_dim * config.ff_dim
  encoder_layer = 2 * projections + feed_forward
  source = config.num_layers * (encoder_layer + projections)
  target = config.num_layers * (encoder_layer + projections) + config.model_dim * vocabulary_size
  return 6.0 * source, 6.0 * target


# Dense 16-bit peaks of one device, in FLOP/s, by JAX's `device_kind`: makers' data sheets.
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
  """The 16-bit peak of a kind of device in FLOP/s, or None if it is not known."""
  return _PEAKS.get(device_kind)
