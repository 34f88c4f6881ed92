"""The settings of `config.model`."""

import dataclasses

from transformer.errors import UserError

NORMS = ('post', 'pre')
POSITIONS = ('sinusoidal', 'learned', 'rotary', 'relative')
ACTIVATIONS = ('relu', 'gelu', 'silu', 'swiglu')
ATTENTIONS = ('reference', 'cudnn')
ATTENTION_BIASES = ('none', 'output', 'all')
DTYPES = ('float32', 'bfloat16')
# The deepest known Transformer has 500 layers in each stack (Wang et al., 2022, "DeepNet").
_MOST_LAYERS = 1000


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """The shape of a Transformer; the defaults are the paper's base model.

  Attributes:
    num_layers: layers in the encoder, and layers in the decoder, N.
    encoder_layers: layers in the encoder, in place of `num_layers`. A deep encoder with a
      shallow decoder translates faster (Kasai et al., 2021, "Deep Encoder, Shallow Decoder").
    decoder_layers: layers in the decoder, in place of `num_layers`.
    model_dim: width of the embeddings and of each layer's output, d_model.
    ff_dim: inner width of the feed-forward sublayer, d_ff.
    activation: activation of the feed-forward sublayer. `relu` is the published one. `gelu`
      and `silu`, x · sigmoid(x), also known as swish, are by Hendrycks and Gimpel (2016).
      `swiglu` is silu(x W) ⊙ x V, with three matrices in place of two and no biases (Shazeer,
      2020, "GLU Variants Improve Transformer").
    num_heads: attention heads, h.
    key_dim: width of a head's queries and keys, d_k; None is model_dim / num_heads.
    value_dim: width of a head's values, d_v; None is model_dim / num_heads.
    attention_bias: the projections of attention that have a bias: `none`, as in the paper's
      equations, `output` or `all`.
    dropout: dropout rate of each sublayer's output and of the sums of embeddings and
      positions (section 5.4).
    attention_dropout: dropout rate of attention weights (section 6.3 uses it in parsing).
    activation_dropout: dropout rate inside the feed-forward sublayer, after the activation.
    layer_drop: probability that an update skips a layer (Fan et al., 2019, "Reducing
      Transformer Depth on Demand with Structured Dropout"). Both passes of R-Drop skip the
      same layers.
    word_dropout: dropout rate of whole token embeddings, source and target (Gal and
      Ghahramani, 2016). Araabi and Monz (2020) use this, and the rates for attention,
      activations and layers, for low-resource translation.
    norm: place of the norms. `post` is after the residual sum, as published; `pre` is before
      each sublayer, with one more norm at the end of each stack.
    rms_norm: use RMS norm in place of layer norm (Zhang and Sennrich, 2019).
    query_key_norm: apply RMS norm to the queries and keys of each head before their dot
      product, with a learned scale for each dim (after Henry et al., 2020, "Query-Key
      Normalization for Transformers").
    positions: kind of positions. `sinusoidal` is the published one and `learned` a learned
      table. `rotary` rotates queries and keys of self-attention (Su et al., 2021). `relative`
      adds a learned bias for each head and distance to the scores of self-attention, the
      same in all layers of a stack (Raffel et al., 2020).
    max_positions: number of positions in the table of `learned`.
    share_embeddings: use one table for source and target tokens (section 3.4).
    tie_output: use the target table as the output projection too (section 3.4).
    output_bias: add a learned bias to the logits, zero at first. The paper has none; models
      that Marian has trained have one.
    attention: implementation of attention: `reference`, or `cudnn` for the fused kernel on
      an NVIDIA GPU.
    dtype: type of activations, `float32` or `bfloat16`. Parameters, softmax, norms and loss
      are float32. In bfloat16, gradients of matrices and biases are rounded to it before
      devices add them up.
    remat: keep only the inputs of each layer for the backward pass and compute the layer
      again. It saves memory and costs about a third more time; updates differ by rounding.
  """

  num_layers: int = 6
  encoder_layers: int | None = None
  decoder_layers: int | None = None
  model_dim: int = 512
  ff_dim: int = 2048
  activation: str = 'relu'
  num_heads: int = 8
  key_dim: int | None = None
  value_dim: int | None = None
  attention_bias: str = 'none'
  dropout: float = 0.1
  attention_dropout: float = 0.0
  activation_dropout: float = 0.0
  layer_drop: float = 0.0
  word_dropout: float = 0.0
  norm: str = 'post'
  rms_norm: bool = False
  query_key_norm: bool = False
  positions: str = 'sinusoidal'
  max_positions: int = 1024
  share_embeddings: bool = True
  tie_output: bool = True
  output_bias: bool = False
  attention: str = 'reference'
  dtype: str = 'float32'
  remat: bool = False

  def __post_init__(self):
    for name in ('model_dim', 'ff_dim', 'num_heads', 'max_positions'):
      if getattr(self, name) < 1:
        raise UserError(f'model.{name} must be at least 1; got {getattr(self, name)}')
    for name in ('num_layers', 'encoder_layers', 'decoder_layers'):
      layers = getattr(self, name)
      if layers is not None and layers < 1:
        raise UserError(f'model.{name} must be at least 1; got {layers}')
      if layers is not None and layers > _MOST_LAYERS:
        raise UserError(f'model.{name} must be at most {_MOST_LAYERS:,}; got {layers}')
    for name in ('key_dim', 'value_dim'):
      width = getattr(self, name)
      if width is None and self.model_dim % self.num_heads:
        raise UserError(f'num_heads must divide model_dim; got num_heads={self.num_heads}, '
                        f'model_dim={self.model_dim} (or set model.key_dim and model.value_dim)')
      if width is not None and width < 1:
        raise UserError(f'model.{name} must be at least 1; got {width}')
    for name in ('dropout', 'attention_dropout', 'activation_dropout', 'layer_drop',
                 'word_dropout'):
      if not 0.0 <= getattr(self, name) < 1.0:
        raise UserError(f'model.{name} must be at least 0 and below 1; got {getattr(self, name)}')
    for name, choices in (('activation', ACTIVATIONS), ('attention_bias', ATTENTION_BIASES),
                          ('norm', NORMS), ('positions', POSITIONS), ('attention', ATTENTIONS),
                          ('dtype', DTYPES)):
      if getattr(self, name) not in choices:
        raise UserError(f'model.{name} must be one of {", ".join(choices)}; '
                        f'got {getattr(self, name)!r}')
    if self.positions == 'rotary' and self.head_key_dim % 2:
      raise UserError(f'model.positions=rotary needs an even key_dim; got {self.head_key_dim}')
    if self.attention == 'cudnn':
      self._check_cudnn()

  def _check_cudnn(self):
    if self.attention_dropout:
      raise UserError('model.attention=cudnn drops no attention weights; set '
                      f'model.attention_dropout=0; got {self.attention_dropout}')
    if self.dtype == 'float32':
      raise UserError('model.attention=cudnn needs 16-bit activations; '
                      'set --config.model.dtype=bfloat16')
    if self.head_key_dim != self.head_value_dim:
      raise UserError(f'model.attention=cudnn needs equal key_dim and value_dim; '
                      f'got key_dim={self.head_key_dim}, value_dim={self.head_value_dim}')
    if self.head_key_dim % 8 or self.head_key_dim > 256:
      raise UserError(f'model.attention=cudnn needs heads whose width is a multiple of 8, at most '
                      f'256; got key_dim={self.head_key_dim}')

  def with_dtype(self, dtype: str) -> 'ModelConfig':
    """Returns the same shape with another type of activations.

    In float32, the reference attention takes the place of cuDNN's, which needs 16 bits.
    """
    fits = dtype != 'float32' or self.attention != 'cudnn'
    return dataclasses.replace(self, dtype=dtype,
                               attention=self.attention if fits else 'reference')

  @property
  def encoder_depth(self) -> int:
    """Number of layers in the encoder."""
    return self.encoder_layers or self.num_layers

  @property
  def decoder_depth(self) -> int:
    """Number of layers in the decoder."""
    return self.decoder_layers or self.num_layers

  @property
  def head_key_dim(self) -> int:
    """Width of a head's queries and keys, d_k."""
    return self.key_dim or self.model_dim // self.num_heads

  @property
  def head_value_dim(self) -> int:
    """Width of a head's values, d_v."""
    return self.value_dim or self.model_dim // self.num_heads
