"""What `config.decode` holds."""

import dataclasses

from transformer.errors import UserError

BLEU_TOKENIZERS = ('13a', 'intl', 'none', 'char', 'zh')


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
  """How a run translates, and how its translations are scored.

  Attributes:
    beam_size: hypotheses kept at each position; 1 is greedy search.
    alpha: exponent of the length penalty ((5 + n) / 6)^α.
    max_extra_length: a translation has at most as many tokens as its source plus
      this many (section 6.1).
    batch_size: sentences translated together.
    bleu_tokenize: sacreBLEU's tokenizer: `13a` for detokenised text, `none` for
      text that comes tokenised.
  """

  beam_size: int = 4
  alpha: float = 0.6
  max_extra_length: int = 50
  batch_size: int = 64
  bleu_tokenize: str = '13a'

  def __post_init__(self):
    for name in ('beam_size', 'max_extra_length', 'batch_size'):
      if getattr(self, name) < 1:
        raise UserError(f'decode.{name} must be at least 1; got {getattr(self, name)}')
    if not 0 <= self.alpha < float('inf'):
      raise UserError(f'decode.alpha must be at least 0 and finite; got {self.alpha}')
    if self.bleu_tokenize not in BLEU_TOKENIZERS:
      raise UserError(f'decode.bleu_tokenize must be one of {", ".join(BLEU_TOKENIZERS)}; '
                      f'got {self.bleu_tokenize!r}')
