"""The settings of `config.decode`."""

import dataclasses

from transformer.errors import UserError

_TRAINED = 'trained'
_DTYPES = (_TRAINED, 'float32', 'bfloat16')
BLEU_TOKENIZERS = ('13a', 'intl', 'none', 'char', 'zh', 'ja-mecab', 'ko-mecab')


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
  """How a run translates, and how its translations are scored.

  Attributes:
    beam_size: hypotheses kept at each position; 1 is greedy search. With `sample`, the
      number of translations drawn for each sentence; the one with the best score is given.
    alpha: exponent of the length penalty ((5 + n) / 6)^α.
    max_extra_length: a translation has at most as many tokens as its source plus
      this many (section 6.1).
    batch_size: sentences translated together.
    dtype: type of activations and of the factors of matrix products: `trained` is the run's
      `model.dtype`. `bfloat16` is faster on processors that multiply it, with slightly other
      scores. Parameters, softmax and norms stay float32.
    sample: draw translations instead of searching for the likeliest. Only then are
      `temperature`, `top_k` and `top_p` read.
    temperature: divides log-probabilities before a token is drawn.
    top_k: draw from the k likeliest tokens; 0 is all.
    top_p: draw from the fewest tokens whose probabilities sum to at least this
      (Holtzman et al., 2020); 1 is all.
    bleu_tokenize: sacreBLEU's tokenizer: `13a` for detokenised text, `none` for tokenised
      text, `zh` for Chinese, `ja-mecab` for Japanese, `ko-mecab` for Korean, and `char` for
      other text without spaces. The two of MeCab need more packages.
  """

  beam_size: int = 4
  alpha: float = 0.6
  max_extra_length: int = 50
  batch_size: int = 64
  dtype: str = _TRAINED
  sample: bool = False
  temperature: float = 1.0
  top_k: int = 0
  top_p: float = 1.0
  bleu_tokenize: str = '13a'

  def __post_init__(self):
    for name in ('beam_size', 'max_extra_length', 'batch_size'):
      if getattr(self, name) < 1:
        raise UserError(f'decode.{name} must be at least 1; got {getattr(self, name)}')
    if self.dtype not in _DTYPES:
      raise UserError(f'decode.dtype must be one of {", ".join(_DTYPES)}; got {self.dtype!r}')
    if not 0 <= self.alpha < float('inf'):
      raise UserError(f'decode.alpha must be at least 0 and finite; got {self.alpha}')
    if not 0 < self.temperature < float('inf'):
      raise UserError(f'decode.temperature must be above 0 and finite; got {self.temperature}')
    if self.top_k < 0:
      raise UserError(f'decode.top_k must be at least 0; got {self.top_k}')
    if not 0 < self.top_p <= 1:
      raise UserError(f'decode.top_p must be above 0 and at most 1; got {self.top_p}')
    if self.bleu_tokenize not in BLEU_TOKENIZERS:
      raise UserError(f'decode.bleu_tokenize must be one of {", ".join(BLEU_TOKENIZERS)}; '
                      f'got {self.bleu_tokenize!r}')
