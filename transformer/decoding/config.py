"""The settings of `config.decode`, and those of one translation."""

import dataclasses
import typing
from math import inf
from typing import Any

from transformer import own_code
from transformer.errors import UserError
from transformer.settings import check_ranges, converted, nearest_name, setting

_SAMPLING = ('temperature', 'top_k', 'top_p', 'seed')
# What one translation may do in another way than its run.
OPTIONS = (
  'beam_size',
  'alpha',
  'dtype',
  'batch_size',
  'search',
  'sample',
  *_SAMPLING,
  'nbest',
)


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
  """How a run translates, and how its translations are scored.

  Attributes:
    beam_size: hypotheses kept at each position; 1 is greedy search.
    alpha: exponent of the length penalty ((5 + n) / 6)^α.
    max_extra_length: a translation has at most as many tokens as its source plus
      this many (section 6.1).
    batch_size: sentences translated together.
    dtype: type of activations and of the factors of matrix products: `trained` is the run's
      `model.dtype`; `bfloat16` may be faster on processors that multiply it, with slightly other
      scores.
    search: `default`, which is greedy or beam search; or MODULE:FUNCTION, or a tuple of that and
      its settings, a function that takes and returns what `ops.beam_search.beam_search` does.
    bleu_tokenize: sacreBLEU's tokenizer: `13a` for detokenised text, `none` for tokenised
      text, `zh` for Chinese, `ja-mecab` for Japanese, `ko-mecab` for Korean, and `char` for
      other text without spaces. The two of MeCab need more packages.
  """

  beam_size: int = setting(4, least=1)
  alpha: float = setting(0.6, least=0, below=inf)
  max_extra_length: int = setting(50, least=1)
  batch_size: int = setting(64, least=1)
  dtype: str = setting('trained', choices=('trained', 'float32', 'bfloat16'))
  # A dict has no hash.
  search: own_code.Setting = dataclasses.field(default='default', hash=False)
  bleu_tokenize: str = setting(
    '13a', choices=('13a', 'intl', 'none', 'char', 'zh', 'ja-mecab', 'ko-mecab')
  )

  prefix = 'decode.'  # What errors put before a name.

  def __post_init__(self):
    check_ranges(self, self.prefix)
    own_code.check(f'{self.prefix}search', self.search, ('default',))


@dataclasses.dataclass(frozen=True)
class Decoding(DecodeConfig):
  """How a text is translated: by search, or by draws.

  Attributes:
    nbest: the number of translations of each sentence, at most `beam_size`.
    sample: draw `beam_size` translations of each sentence instead of searching for the likeliest,
      and give the one with the best score. Only then are the others read.
    temperature: divides log-probabilities before a token is drawn.
    top_k: draw from the k likeliest tokens; 0 is all.
    top_p: draw from the fewest tokens whose probabilities sum to at least this
      (Holtzman et al., 2020); 1 is all.
    seed: the root of the random keys of the draws.
  """

  nbest: int = setting(1, least=1)
  sample: bool = False
  temperature: float = setting(1.0, above=0, below=inf)
  top_k: int = setting(0, least=0)
  top_p: float = setting(1.0, above=0, most=1)
  seed: int = setting(0, least=0, below=2**32)

  prefix = ''

  def __post_init__(self):
    super().__post_init__()
    if self.nbest > self.beam_size:
      raise UserError(
        f'nbest={self.nbest} needs as many beams, and there are {self.beam_size}; give '
        f'beam_size={self.nbest}'
      )
    if self.sample and self.search != 'default':
      raise UserError('search and sample exclude each other; leave one out')


def decoding_for(config: DecodeConfig, run_seed: int, /, **options: Any) -> Decoding:
  """Returns how a run with a config and a seed translates, changed by options.

  Raises:
    UserError: an option has an unknown name, a wrong type or value, or does not suit the others.
  """
  kinds = typing.get_type_hints(Decoding)
  values = {}
  for name, value in options.items():
    if name not in OPTIONS:
      raise UserError(f'there is no option {name}; {nearest_name(name, OPTIONS)}')
    values[name] = converted(kinds[name], value, name)
  drawing = [name for name in _SAMPLING if name in options]
  if drawing and not values.get('sample'):
    raise UserError(
      f'{" and ".join(drawing)} needs sample; without it nothing is drawn'
    )
  settings = dataclasses.asdict(config) | {'seed': run_seed}
  if values.get('sample'):
    # The run's beam size is for its search; the best of several samples is not a plain sample.
    settings |= {'beam_size': 1, 'search': 'default'}
  return Decoding(**(settings | values))
