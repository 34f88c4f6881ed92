"""The tensors of MarianMT and Pegasus, and the parameters that they correspond to.

The library's sinusoidal positions have all sines before all cosines; in this project, they
alternate. So the dims of the model are permuted in all tensors.

The library's layer norms have an epsilon of 10⁻⁵, and this project's 10⁻⁶. For MarianMT, which is
post-norm, residual sums are scaled by c, with c² = 10: a norm of c · x with an epsilon of 10⁻⁵ is
the norm of x with 10⁻⁶. The first residual sum of each stack is not scaled, because it includes the
positions; the library computes them itself, and does not save them. The variance in the first norm
therefore differs by at most 10⁻⁵. For Pegasus, which is pre-norm, all sums include the positions
and are not scaled, with the same difference.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.ops.positions import sinusoidal_positions
from transformer.tools.convert.safetensors_format import read_tensors

WEIGHTS = 'model.safetensors'
POSITIONS = tuple(
  f'model.{side}.embed_positions.weight' for side in ('encoder', 'decoder')
)
# Factor of residual sums, which compensates for the different epsilon of the norms.
_GROWTH = (1e-5 / 1e-6) ** 0.5
# The library's name of each part of a sublayer.
_PARTS = {
  'feed_forward': {'inner': 'fc1', 'outer': 'fc2'},
  'self_attention': {
    'query': 'self_attn.q_proj',
    'key': 'self_attn.k_proj',
    'value': 'self_attn.v_proj',
    'output': 'self_attn.out_proj',
  },
  'cross_attention': {
    'query': 'encoder_attn.q_proj',
    'key': 'encoder_attn.k_proj',
    'value': 'encoder_attn.v_proj',
    'output': 'encoder_attn.out_proj',
  },
}
_NORMS = {
  'self_attention': 'self_attn',
  'cross_attention': 'encoder_attn',
  'feed_forward': 'final',
}


class Tensor(NamedTuple):
  """A tensor of the library and the corresponding parameter of this project.

  Attributes:
    name: the tensor, as the library names it.
    path: the parameter among the nested dicts, joined by dots.
    shape: the shape of the parameter.
    dims: the parameter's axis of the model's dims, the first or the last; None if it has none.
    factor: the library's values divided by this project's.
  """

  name: str
  path: str
  shape: tuple[int, ...]
  dims: int | None
  factor: float = 1.0

  def to_huggingface(self, array: np.ndarray) -> np.ndarray:
    """Returns the library's tensor of a parameter."""
    if self.dims is not None:
      array = array.take(dim_order(self.shape[self.dims]), self.dims)
    if self.path.endswith('.bias'):
      array = array.reshape(-1)
    elif self.path.endswith('.kernel'):
      ends = (self.shape[0], -1) if self.dims == 0 else (-1, self.shape[-1])
      array = array.reshape(ends).T
    return array * np.float32(self.factor)

  def from_huggingface(self, tensor: np.ndarray) -> np.ndarray:
    """Returns the parameter of a tensor of the library: the inverse of `to_huggingface`."""
    array = tensor / np.float32(self.factor)
    if self.path.endswith('.kernel'):
      array = array.T
    array = array.reshape(self.shape)
    if self.dims is not None:
      array = array.take(np.argsort(dim_order(self.shape[self.dims])), self.dims)
    return array


def read_weights(folder: Path) -> dict[str, np.ndarray]:
  """Returns the tensors of a folder."""
  path = folder / WEIGHTS
  if not path.exists():
    raise UserError(
      f'{folder} should hold its weights as {WEIGHTS}, in one file, as save_pretrained writes them '
      f'with max_shard_size="100GB"; pickles are not read, since they can run any code'
    )
  return read_tensors(path)[1]


def dim_order(dim: int) -> np.ndarray:
  """Returns the model's dims in the library's order: dims of sines first, then of cosines."""
  return np.concatenate([np.arange(0, dim, 2), np.arange(1, dim, 2)])


def sinusoids(length: int, dim: int) -> np.ndarray:
  """Returns sinusoidal positions in the library's order of dims."""
  return np.asarray(sinusoidal_positions(length, dim), np.float32)[:, dim_order(dim)]


def layout(config: ModelConfig, source_size: int, size: int) -> Iterator[Tensor]:
  """Yields all tensors of a model except the output bias.

  `source_size` and `size` are the numbers of source and target tokens.
  """
  dim = config.model_dim
  source = 'target' if config.share_embeddings else 'source'
  tables = {
    'model.encoder.embed_tokens': f'{source}_embedding.table',
    'model.decoder.embed_tokens': 'target_embedding.table',
  }
  if not config.tie_output:
    tables['lm_head'] = 'output'
  elif config.share_embeddings:
    tables = {'model.shared': 'target_embedding.table'}
  for name, path in tables.items():
    rows = source_size if 'source' in path else size
    yield Tensor(f'{name}.weight', path, (rows, dim), -1)
  yield from _stack(
    config, 'encoder', config.num_layers, ('self_attention', 'feed_forward')
  )
  sublayers = ('self_attention', 'cross_attention', 'feed_forward')
  yield from _stack(config, 'decoder', config.decoder_depth, sublayers)


def _stack(
  config: ModelConfig, side: str, depth: int, sublayers: tuple[str, ...]
) -> Iterator[Tensor]:
  """Yields the tensors of the encoder or the decoder."""
  growth = _GROWTH if config.norm_position == 'post' else 1.0
  if config.norm_position == 'pre':
    yield from _norm(f'model.{side}.layer_norm', f'{side}_norm', config.model_dim)
  for layer, sublayer in itertools.product(range(depth), sublayers):
    # The factors of the residual sum before MarianMT's norm, and of the norm's output.
    input_factor = 1.0 if (layer, sublayer) == (0, sublayers[0]) else growth
    output_factor = 1.0 if (layer, sublayer) == (depth - 1, sublayers[-1]) else growth
    hf_prefix = f'model.{side}.layers.{layer}'
    prefix = f'{side}_{layer}.{sublayer}'
    for part, name in _PARTS[sublayer].items():
      yield from _projection(
        config, f'{hf_prefix}.{name}', f'{prefix}.{part}', input_factor
      )
    norm = f'{hf_prefix}.{_NORMS[sublayer]}_layer_norm'
    yield from _norm(
      norm, f'{prefix}_residual.layer_norm', config.model_dim, output_factor
    )


def _projection(
  config: ModelConfig, name: str, path: str, input_factor: float
) -> Iterator[Tensor]:
  """Yields the weight and bias of a projection of inputs with the factor `input_factor`."""
  dim = config.model_dim
  sublayer, part = path.split('.')[1:]
  inner = (config.num_heads, dim // config.num_heads)
  if sublayer == 'feed_forward':
    inner = (config.ff_dim,)
  if part in ('outer', 'output'):
    yield Tensor(f'{name}.weight', f'{path}.kernel', (*inner, dim), -1, input_factor)
    yield Tensor(f'{name}.bias', f'{path}.bias', (dim,), -1, input_factor)
    return
  # Cross-attention keys and values read the encoder's output, which has a factor of 1.
  reads_source = sublayer == 'cross_attention' and part != 'query'
  factor = 1.0 if reads_source else 1 / input_factor
  yield Tensor(f'{name}.weight', f'{path}.kernel', (dim, *inner), 0, factor)
  yield Tensor(f'{name}.bias', f'{path}.bias', inner, None)


def _norm(name: str, path: str, dim: int, factor: float = 1.0) -> Iterator[Tensor]:
  """Yields the scale and bias of a layer norm."""
  for hf_part, part in (('weight', 'scale'), ('bias', 'bias')):
    yield Tensor(f'{name}.{hf_part}', f'{path}.{part}', (dim,), -1, factor)
