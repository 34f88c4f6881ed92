"""The settings of `config.model`."""

import dataclasses

from transformer import plugins
from transformer.config_fields import check_ranges, config_field
from transformer.errors import UserError, short_repr

# The deepest known Transformer has 500 layers per stack (Wang et al., 2022, "DeepNet").
_MAX_LAYERS = 1000


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """The architecture of a Transformer; the defaults are the paper's base model.

  Attributes:
    num_layers: number of encoder layers, and of decoder layers, N.
    decoder_layers: number of decoder layers; None is `num_layers`. A deep encoder with a shallow
      decoder translates faster (Kasai et al., 2021, "Deep Encoder, Shallow Decoder").
    model_dim: width of the embeddings and of each layer's output, d_model.
    ff_dim: inner width of the feed-forward sublayer, d_ff.
    activation: activation of the feed-forward sublayer. `relu` is the published one. `gelu`
      and `silu`, x · sigmoid(x), also known as swish, are by Hendrycks and Gimpel (2016).
      `swiglu` is silu(x W) ⊙ x V, with three matrices instead of two and no biases (Shazeer,
      2020, "GLU Variants Improve Transformer").
    num_heads: number of attention heads, h.
    key_dim: width of the queries and keys of a head, d_k; None is model_dim / num_heads.
    value_dim: width of the values of a head, d_v; None is model_dim / num_heads.
    attention_bias: the attention projections that have a bias: `none`, as in the paper's
      equations, `output` or `all`.
    dropout: dropout rate of each sublayer output and of the sums of embeddings and positions
      (section 5.4).
    attention_dropout: dropout rate of attention weights (section 6.3 uses it in parsing).
    activation_dropout: dropout rate inside the feed-forward sublayer, after the activation.
    norm_position: position of the norms. `post` is after the residual sum, as published. `pre` is
      before each sublayer, with one more norm at the end of each stack.
    rms_norm: use RMS norm instead of layer norm (Zhang and Sennrich, 2019).
    query_key_norm: apply RMS norm to the queries and keys of each head before their dot
      product, with a learned scale per dim (after Henry et al., 2020, "Query-Key
      Normalization for Transformers").
    positions: position encoding. `sinusoidal` is the published one, `learned` a learned table.
      `rotary` rotates queries and keys of self-attention (Su et al., 2021). `relative` adds a
      learned bias per head and distance to the scores of self-attention, shared by all layers
      of a stack (Raffel et al., 2020).
    max_positions: number of positions in the table of `learned`.
    share_embeddings: use one embedding table for source and target tokens (section 3.4).
    tie_output: use the target embedding table also as the output projection (section 3.4).
    output_bias: add a learned bias to the logits, initialized to zero. The paper has none;
      models trained by Marian have one.
    attention: implementation of attention: `reference`, `cudnn` for the fused kernel on an
      NVIDIA GPU, or MODULE:FUNCTION with the arguments of `ops.attention.dot_product_attention`.
    dtype: type of activations, `float32` or `bfloat16`. Parameters, softmax, norms and loss
      are float32. In bfloat16, gradients of matrices and biases are rounded to bfloat16 before
      they are summed over devices.
    remat: keep only the inputs of each layer for the backward pass and recompute the layer.
      Saves memory and takes about a third more time; gradients differ by rounding.
    module: the class of the model, MODULE:CLASS, or a tuple of MODULE:CLASS and a dict of its
      settings; '' is `model.transformer.Transformer`. `model.building` defines its interface.
  """

  num_layers: int = config_field(6, min=1, max=_MAX_LAYERS)
  decoder_layers: int | None = config_field(None, min=1, max=_MAX_LAYERS)
  model_dim: int = config_field(512, min=1)
  ff_dim: int = config_field(2048, min=1)
  activation: str = config_field('relu', choices=('relu', 'gelu', 'silu', 'swiglu'))
  num_heads: int = config_field(8, min=1)
  key_dim: int | None = config_field(None, min=1)
  value_dim: int | None = config_field(None, min=1)
  attention_bias: str = config_field('none', choices=('none', 'output', 'all'))
  dropout: float = config_field(0.1, min=0, below=1)
  attention_dropout: float = config_field(0.0, min=0, below=1)
  activation_dropout: float = config_field(0.0, min=0, below=1)
  norm_position: str = config_field('post', choices=('post', 'pre'))
  rms_norm: bool = False
  query_key_norm: bool = False
  positions: str = config_field(
    'sinusoidal', choices=('sinusoidal', 'learned', 'rotary', 'relative')
  )
  max_positions: int = config_field(1024, min=1)
  share_embeddings: bool = True
  tie_output: bool = True
  output_bias: bool = False
  attention: str = 'reference'
  dtype: str = config_field('float32', choices=('float32', 'bfloat16'))
  remat: bool = False
  # A dict has no hash.
  module: plugins.Setting = dataclasses.field(default='', hash=False)

  def __post_init__(self):
    check_ranges(self, 'model.')
    plugins.check('model.module', self.module, ('',))
    if ':' not in self.attention and self.attention not in ('reference', 'cudnn'):
      raise UserError(
        'model.attention must be reference, cudnn, or MODULE:FUNCTION; got '
        f'{short_repr(self.attention)}'
      )
    if None in (self.key_dim, self.value_dim) and self.model_dim % self.num_heads:
      raise UserError(
        f'num_heads must divide model_dim; got num_heads={self.num_heads}, '
        f'model_dim={self.model_dim} (or set model.key_dim and model.value_dim)'
      )
    if self.positions == 'rotary' and self.head_key_dim % 2:
      raise UserError(
        f'model.positions=rotary needs an even key_dim; got {self.head_key_dim}'
      )
    if self.attention != 'cudnn':
      return
    if self.attention_dropout:
      raise UserError(
        'model.attention=cudnn has no attention dropout; set model.attention_dropout=0; got '
        f'{self.attention_dropout}'
      )
    if self.dtype == 'float32':
      raise UserError(
        'model.attention=cudnn needs 16-bit activations; set --config.model.dtype=bfloat16'
      )
    width = self.head_key_dim
    if width != self.head_value_dim or width % 8 or width > 256:
      raise UserError(
        f'model.attention=cudnn needs equal key_dim and value_dim, a multiple of 8 '
        f'and at most 256; got key_dim={width}, value_dim={self.head_value_dim}'
      )

  def with_dtype(self, dtype: str) -> 'ModelConfig':
    """Returns the config with another `dtype`; in float32, `reference` replaces `cudnn`."""
    unfused = self.attention == 'cudnn' and dtype == 'float32'
    return dataclasses.replace(
      self, dtype=dtype, attention='reference' if unfused else self.attention
    )

  @property
  def decoder_depth(self) -> int:
    """Number of decoder layers."""
    return self.decoder_layers or self.num_layers

  @property
  def head_key_dim(self) -> int:
    """Width of the queries and keys of a head, d_k."""
    return self.key_dim or self.model_dim // self.num_heads

  @property
  def head_value_dim(self) -> int:
    """Width of the values of a head, d_v."""
    return self.value_dim or self.model_dim // self.num_heads
