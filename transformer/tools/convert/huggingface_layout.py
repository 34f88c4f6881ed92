"""The tensors of MarianMT and of Pegasus, and the parameters that they are made from.

The sinusoids of both have all sines before all cosines, and those of this project alternate. So the
dims of the model are permuted in all tensors.

Their layer norms have an epsilon of 10⁻⁵, and those of this project 10⁻⁶. MarianMT, whose norms
follow the residual sums, gets sums that are c times as large, with c² = 10: a norm of c · x with an
epsilon of 10⁻⁵ is the norm of x with 10⁻⁶. The first residual sum of each stack is kept as it is,
because it holds the positions; the library computes them itself, and does not save them. Its norm
differs by at most 10⁻⁵ of its variance. In Pegasus, whose norms precede the sublayers, all sums
hold the positions and are kept, with the same difference.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from transformer.model.config import ModelConfig

_GROWTH = (1e-5 / 1e-6) ** 0.5  # Of residual sums, for the other epsilon of the norms.
_SUBLAYERS = {'self_attention': 'self_attn', 'cross_attention': 'encoder_attn'}
_PROJECTIONS = {'query': 'q_proj', 'key': 'k_proj', 'value': 'v_proj', 'output': 'out_proj'}


class Tensor(NamedTuple):
  """A tensor of the library and the parameter of this project that it is made from.

  Attributes:
    name: its name in the library.
    path: the parameter's path among the nested dicts, joined by dots.
    shape: the parameter's shape.
    dims: the parameter's axis of the model's dims, the first or the last; None if it has none.
    factor: the library's values divided by this project's.
  """

  name: str
  path: str
  shape: tuple[int, ...]
  dims: int | None
  factor: float = 1.0


def shares_all(config: ModelConfig) -> bool:
  """Returns whether one table serves source, target and output."""
  return config.share_embeddings and config.tie_output


def dim_order(dim: int) -> np.ndarray:
  """Returns the dims of the model in the library's order: those of sines, then of cosines."""
  return np.concatenate([np.arange(0, dim, 2), np.arange(1, dim, 2)])


def layout(config: ModelConfig, source_size: int, size: int) -> Iterator[Tensor]:
  """Yields all tensors of a model, with that many source and target tokens, but its bias."""
  source = 'target' if config.share_embeddings else 'source'
  tables = {'model.shared': 'target_embedding.table'} if shares_all(config) else {
      'model.encoder.embed_tokens': f'{source}_embedding.table',
      'model.decoder.embed_tokens': 'target_embedding.table',
      **({} if config.tie_output else {'lm_head': 'output'})}
  for name, path in tables.items():
    rows = source_size if path.startswith('source') else size
    yield Tensor(f'{name}.weight', path, (rows, config.model_dim), -1)
  growth = _GROWTH if config.norm == 'post' else 1.0
  for side, depth, sublayers in (
      ('encoder', config.encoder_depth, ('self_attention', 'feed_forward')),
      ('decoder', config.decoder_depth, ('self_attention', 'cross_attention', 'feed_forward'))):
    if config.norm == 'pre':
      yield from _norm(f'model.{side}.layer_norm', f'{side}_norm', config.model_dim)
    for layer in range(depth):
      for sublayer in sublayers:
        before = 1.0 if (layer, sublayer) == (0, sublayers[0]) else growth
        after = 1.0 if (layer, sublayer) == (depth - 1, sublayers[-1]) else growth
        yield from _sublayer(config, (f'model.{side}.layers.{layer}', f'{side}_{layer}'), sublayer,
                             before, after)


def _sublayer(config: ModelConfig, layer: tuple[str, str], sublayer: str, before: float,
              after: float) -> Iterator[Tensor]:
  """Yields the tensors of a sublayer and of its norm.

  Args:
    config: the model's shape.
    layer: the layer's name in the library, and its path.
    sublayer: its name in this project.
    before: the factor of the residual sum before MarianMT's norm.
    after: the factor of the norm's output.
  """
  theirs, ours = layer
  dim = config.model_dim
  if sublayer == 'feed_forward':
    norm = 'final_layer_norm'
    yield from _linear(f'{theirs}.fc1', f'{ours}.feed_forward.inner', (dim, config.ff_dim),
                       0, 1 / before)
    yield from _linear(f'{theirs}.fc2', f'{ours}.feed_forward.outer', (config.ff_dim, dim),
                       -1, before)
  else:
    norm = f'{_SUBLAYERS[sublayer]}_layer_norm'
    heads = (config.num_heads, dim // config.num_heads)
    for part, projection in _PROJECTIONS.items():
      names = f'{theirs}.{_SUBLAYERS[sublayer]}.{projection}', f'{ours}.{sublayer}.{part}'
      if part == 'output':
        yield from _linear(*names, (*heads, dim), -1, before)
      else:  # The encoded source has a factor of one.
        reads_source = sublayer == 'cross_attention' and part != 'query'
        yield from _linear(*names, (dim, *heads), 0, 1.0 if reads_source else 1 / before)
  yield from _norm(f'{theirs}.{norm}', f'{ours}.{sublayer}_residual.layer_norm', dim, after)


def _norm(name: str, path: str, dim: int, factor: float = 1.0) -> Iterator[Tensor]:
  """Yields the scale and the bias of a layer norm."""
  for theirs, ours in (('weight', 'scale'), ('bias', 'bias')):
    yield Tensor(f'{name}.{theirs}', f'{path}.{ours}', (dim,), -1, factor)


def _linear(name: str, path: str, shape: tuple[int, ...], dims: int, factor: float
            ) -> Iterator[Tensor]:
  """Yields the matrix and the bias of a projection from the model's dims (0) or to them (−1)."""
  yield Tensor(f'{name}.weight', f'{path}.kernel', shape, dims, factor)
  yield (Tensor(f'{name}.bias', f'{path}.bias', shape[1:], None) if dims == 0
         else Tensor(f'{name}.bias', f'{path}.bias', shape[-1:], -1, factor))
