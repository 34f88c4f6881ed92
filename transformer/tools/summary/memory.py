"""Estimates the memory per device in a training step, by formula.

The bytes of activations follow Korthikanti et al. (2022, "Reducing Activation Recomputation in
Large Transformer Models", section 4): 34 model_dim bytes per position and layer in 16 bits, if
ff_dim = 4 model_dim. In the decoder, cross-attention is added.
"""

from transformer.tools.summary.job import Job

# On an H100, this is 5% above the compiler's number for the base model and 7% for the big one, as
# of 96adc49; as of cecbf03, 19% and 22%.
FORMULA = (
  "analytic estimate; for the compiler's own number, run python -m benchmarks.gpu_costs or "
  'benchmarks.tpu_costs'
)
# Bytes in 16 bits per model dimension and position: attention and its norm; the feed-forward
# sublayer and its norm, without the inner width, and per inner dimension; the input of a layer.
_ATTENTION = 13
_FEED_FORWARD = 5
_INNER = 4
_INPUT = 2
_WEIGHT = 5  # Per attention weight, if weights are stored.


def needed_bytes(job: Job) -> int | None:
  """Returns the bytes of state, gradients and activations per device; None if unknown."""
  if job.parameters is None:
    return None
  mesh = job.config.mesh
  splits = job.devices // mesh.data
  if mesh.data == -1:
    splits = mesh.fsdp * mesh.tensor
  gradients = 4 * job.parameters
  activations = job.rows_per_device * _row_bytes(job)
  return (job.state_bytes + gradients) // splits + activations


def _row_bytes(job: Job) -> int:
  """Returns the bytes of activations of one row, source and target."""
  model = job.config.model
  _, source_length, target_length = job.shape
  attention = _ATTENTION * model.model_dim
  feed_forward = _FEED_FORWARD * model.model_dim + _INNER * model.ff_dim
  source = source_length * (attention + feed_forward)
  target = target_length * (2 * attention + feed_forward)
  if model.attention != 'cudnn':
    weights = _WEIGHT * model.num_heads
    source += weights * source_length**2
    target += weights * target_length * (source_length + target_length)
  again = 0
  if model.remat:
    again = max(source, target)
    source = source_length * _INPUT * model.model_dim
    target = target_length * _INPUT * model.model_dim
  total = model.num_layers * source + model.decoder_depth * target + again
  return 2 * total if model.dtype == 'float32' else total
