"""The settings of `config.decode`, and the options of one translation."""

import dataclasses
import typing
from math import inf
from typing import Any

from transformer import plugins
from transformer.config_fields import check_ranges, coerce, config_field, did_you_mean
from transformer.errors import UserError

_SAMPLING = ('temperature', 'top_k', 'top_p', 'seed')
# Settings that one translation can override.
DECODE_OPTIONS = (
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
    beam_size: hypotheses kept at each step; 1 is greedy search.
    alpha: exponent of the length penalty ((5 + n) / 6)^α.
    max_extra_length: maximum tokens of a translation beyond the length of its source
      (section 6.1).
    batch_size: sentences per batch.
    dtype: dtype of activations and of the inputs of matrix products: `trained` is the run's
      `model.dtype`; `float32` and `bfloat16` override it. `bfloat16` may be faster on processors
      with bfloat16 matrix products, with slightly different scores.
    search: `default` is greedy or beam search. MODULE:FUNCTION, or a tuple of MODULE:FUNCTION and
      its extra arguments, is a custom search; see docs/changing-the-model.md.
    bleu_tokenize: sacreBLEU's tokenizer: `13a` for detokenized text, `intl` for the same with
      mteval-v14's international rules, `none` for tokenized text, `zh` for Chinese, `ja-mecab` for
      Japanese, `ko-mecab` for Korean, and `char` for other text without spaces. The two MeCab
      tokenizers need extra packages.
  """

  beam_size: int = config_field(4, min=1)
  alpha: float = config_field(0.6, min=0, below=inf)
  max_extra_length: int = config_field(50, min=1)
  batch_size: int = config_field(64, min=1)
  dtype: str = config_field('trained', choices=('trained', 'float32', 'bfloat16'))
  # A dict is not hashable.
  search: plugins.Setting = dataclasses.field(default='default', hash=False)
  bleu_tokenize: str = config_field(
    '13a', choices=('13a', 'intl', 'none', 'char', 'zh', 'ja-mecab', 'ko-mecab')
  )

  error_prefix = 'decode.'  # Precedes names in error messages.

  def __post_init__(self):
    check_ranges(self, self.error_prefix)
    plugins.check(f'{self.error_prefix}search', self.search, ('default',))


@dataclasses.dataclass(frozen=True)
class DecodeOptions(DecodeConfig):
  """How a text is translated: by search, or by sampling.

  Attributes:
    nbest: number of translations per sentence, at most `beam_size`.
    sample: sample `beam_size` translations per sentence instead of searching for the likeliest,
      and return the one with the best score. The options below are only for sampling.
    temperature: divides log-probabilities before a token is sampled.
    top_k: sample from the k likeliest tokens; 0 is all.
    top_p: nucleus sampling: sample from the fewest tokens whose probabilities sum to at least this
      (Holtzman et al., 2020); 1 is all.
    seed: root of the random keys for sampling.
  """

  nbest: int = config_field(1, min=1)
  sample: bool = False
  temperature: float = config_field(1.0, above=0, below=inf)
  top_k: int = config_field(0, min=0)
  top_p: float = config_field(1.0, above=0, max=1)
  seed: int = config_field(0, min=0, below=2**32)

  error_prefix = ''

  def __post_init__(self):
    super().__post_init__()
    if self.nbest > self.beam_size:
      raise UserError(
        f'nbest={self.nbest} exceeds beam_size={self.beam_size}; set beam_size={self.nbest}'
      )
    if self.sample and self.search != 'default':
      raise UserError('search and sample are mutually exclusive; remove one')


def resolve_decode_options(
  config: DecodeConfig, run_seed: int, /, **options: Any
) -> DecodeOptions:
  """Returns the `DecodeOptions` of a run with this config and seed, overridden by `options`.

  Raises:
    UserError: an option has an unknown name, a wrong type or value, or conflicts with another.
  """
  kinds = typing.get_type_hints(DecodeOptions)
  values = {}
  for name, value in options.items():
    if name not in DECODE_OPTIONS:
      raise UserError(
        f'there is no option {name}; {did_you_mean(name, DECODE_OPTIONS)}'
      )
    values[name] = coerce(kinds[name], value, name)
  sampling_options = [name for name in _SAMPLING if name in options]
  if sampling_options and not values.get('sample'):
    names = ' and '.join(sampling_options)
    raise UserError(f'only sampling uses {names}; add sample, or remove {names}')
  settings = dataclasses.asdict(config) | {'seed': run_seed}
  if values.get('sample'):
    # Ignores the run's beam size: the best of several samples is not a plain sample.
    settings |= {'beam_size': 1, 'search': 'default'}
  return DecodeOptions(**(settings | values))
