"""What `config.model` holds."""

import dataclasses

from transformer.errors import UserError

NORMS = ('post', 'pre')
POSITIONS = ('sinusoidal', 'learned', 'rotary', 'relative')
ACTIVATIONS = ('relu', 'gelu', 'swiglu')
ATTENTIONS = ('reference', 'cudnn')
DTYPES = ('float32', 'bfloat16')
# The deepest that are known of (Wang et al., 2022, "DeepNet") have 500.
_MOST_LAYERS = 1000


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """The shape of a Transformer; the defaults are the paper's base model.

  Attributes:
    num_layers: layers in the encoder, and as many in the decoder.
    model_dim: width of the residual stream, d_model.
    ff_dim: inner width of the feed-forward sublayer, d_ff.
    activation: of the feed-forward sublayer: `relu`, as published; `gelu`
      (Hendrycks and Gimpel, 2016); or `swiglu`, swish(x W) ⊙ x V in its place,
      without biases (Shazeer, 2020, "GLU Variants Improve Transformer"), which has
      three matrices where the others have two.
    num_heads: attention heads, h.
    key_dim: width of a head's queries and keys, d_k; None is model_dim / num_heads.
    value_dim: width of a head's values, d_v; None is model_dim / num_heads.
    dropout: rate on each sublayer's output and on the sums of embeddings and
      positions (section 5.4).
    norm: `post`, layer norm after the residual sum, as published; or `pre`, on
      the way into each sublayer, with one more at the end of each stack.
    rms_norm: divide by the root mean square and nothing else, in place of layer
      norm (Zhang and Sennrich, 2019).
    query_key_norm: normalise the queries and keys of each head by their root mean
      square before they meet (after Henry et al., 2020, "Query-Key Normalization for
      Transformers"); a learned scale for each dim keeps their size free.
    positions: `sinusoidal`, as published; `learned`; `rotary`, queries and keys of
      self-attention turned by their positions (Su et al., 2021); or `relative`, a
      bias for each head and distance added to the scores of self-attention, shared
      by the layers of a stack (Raffel et al., 2020).
    max_positions: the most positions that `learned` has room for.
    share_embeddings: one table for source and target tokens (section 3.4).
    tie_output: the target table is the output projection too (section 3.4).
    attention: `reference`, or `cudnn` for the fused kernel on an NVIDIA GPU.
    dtype: type of activations; parameters, softmax, norms and loss are float32.
    remat: keep only what goes into each layer for the backward pass, and compute
      what happens inside it again: less memory, for about a third more time. The
      updates are the same but for rounding.
  """

  num_layers: int = 6
  model_dim: int = 512
  ff_dim: int = 2048
  activation: str = 'relu'
  num_heads: int = 8
  key_dim: int | None = None
  value_dim: int | None = None
  dropout: float = 0.1
  norm: str = 'post'
  rms_norm: bool = False
  query_key_norm: bool = False
  positions: str = 'sinusoidal'
  max_positions: int = 1024
  share_embeddings: bool = True
  tie_output: bool = True
  attention: str = 'reference'
  dtype: str = 'float32'
  remat: bool = False

  def __post_init__(self):
    for name in ('num_layers', 'model_dim', 'ff_dim', 'num_heads', 'max_positions'):
      if getattr(self, name) < 1:
        raise UserError(f'model.{name} must be at least 1; got {getattr(self, name)}')
    if self.num_layers > _MOST_LAYERS:
      raise UserError(f'model.num_layers must be at most {_MOST_LAYERS:,}; got {self.num_layers}')
    for name in ('key_dim', 'value_dim'):
      width = getattr(self, name)
      if width is None and self.model_dim % self.num_heads:
        raise UserError(f'num_heads must divide model_dim; got num_heads={self.num_heads}, '
                        f'model_dim={self.model_dim} (or set model.key_dim and model.value_dim)')
      if width is not None and width < 1:
        raise UserError(f'model.{name} must be at least 1; got {width}')
    if not 0.0 <= self.dropout < 1.0:
      raise UserError(f'model.dropout must be at least 0 and below 1; got {self.dropout}')
    for name, choices in (('activation', ACTIVATIONS), ('norm', NORMS), ('positions', POSITIONS),
                          ('attention', ATTENTIONS), ('dtype', DTYPES)):
      if getattr(self, name) not in choices:
        raise UserError(f'model.{name} must be one of {", ".join(choices)}; '
                        f'got {getattr(self, name)!r}')
    if self.positions == 'rotary' and self.head_key_dim % 2:
      raise UserError(f'model.positions=rotary needs an even key_dim; got {self.head_key_dim}')
    if self.attention == 'cudnn':
      self._check_cudnn()

  def _check_cudnn(self):
    if self.dtype == 'float32':
      raise UserError('model.attention=cudnn needs 16-bit activations; '
                      'set --config.model.dtype=bfloat16')
    if self.head_key_dim != self.head_value_dim:
      raise UserError(f'model.attention=cudnn needs equal key_dim and value_dim; '
                      f'got key_dim={self.head_key_dim}, value_dim={self.head_value_dim}')
    if self.head_key_dim % 8 or self.head_key_dim > 256:
      raise UserError(f'model.attention=cudnn needs heads whose width is a multiple of 8, at most '
                      f'256; got key_dim={self.head_key_dim}')

  @property
  def head_key_dim(self) -> int:
    """d_k, resolved."""
    return self.key_dim or self.model_dim // self.num_heads

  @property
  def head_value_dim(self) -> int:
    """d_v, resolved."""
    return self.value_dim or self.model_dim // self.num_heads
