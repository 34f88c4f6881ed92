"""The settings of `config.decode`, and those of one translation."""

import dataclasses
import typing
from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple

from transformer import own_code
from transformer.errors import refuse
from transformer.settings import check_range, check_ranges, converted, setting

BLEU_TOKENIZERS = ('13a', 'intl', 'none', 'char', 'zh', 'ja-mecab', 'ko-mecab')
_SAMPLING = ('temperature', 'top_k', 'top_p', 'seed')
# What one translation may do in another way than the config of its run.
SETTINGS = ('beam_size', 'alpha', 'dtype', 'batch_size', 'search', 'sample', *_SAMPLING)


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
  bleu_tokenize: str = setting('13a', choices=BLEU_TOKENIZERS)

  # A run searches; a `SampleConfig` may draw.
  sample = False
  # What errors put before a name: a run's settings come from its config, those of one command from
  # its flags.
  prefix = 'decode.'

  def __post_init__(self):
    check_ranges(self, self.prefix)
    own_code.check(f'{self.prefix}search', self.search, ('default',))


@dataclasses.dataclass(frozen=True)
class SampleConfig(DecodeConfig):
  """How one command translates: by search, or by draws.

  Attributes:
    sample: draw `beam_size` translations of each sentence instead of searching for the likeliest,
      and give the one with the best score. Only then are the others read.
    temperature: divides log-probabilities before a token is drawn.
    top_k: draw from the k likeliest tokens; 0 is all.
    top_p: draw from the fewest tokens whose probabilities sum to at least this
      (Holtzman et al., 2020); 1 is all.
  """

  sample: bool = False
  temperature: float = setting(1.0, above=0, below=inf)
  top_k: int = setting(0, least=0)
  top_p: float = setting(1.0, above=0, most=1)

  prefix = '--'


class CallConfig(SampleConfig):
  """How one call in Python translates; errors name its arguments."""

  prefix = ''


class Decoding(NamedTuple):
  """How a text is translated: by a search or draws, the seed of draws, and the length of lists.

  `more` is what else results have, by name: BLEU's tokenizer, if it is not the one of the run's
  config, and digests of constraints.
  """

  config: DecodeConfig
  seed: int
  nbest: int = 1
  more: Mapping[str, str] = MappingProxyType({})

  @classmethod
  def of(
    cls,
    config: DecodeConfig,
    seed: int,
    given: Mapping[str, Any],
    kind: type[SampleConfig] = SampleConfig,
  ) -> 'Decoding':
    """Returns how a run translates, changed by what is given, which errors name as `kind` does."""
    return cls(kind(**dataclasses.asdict(config)), seed).changed(**given)

  def changed(self, **given: Any) -> 'Decoding':
    """Returns this with other settings, by name, or another seed or nbest."""
    prefix = self.config.prefix
    hints = {**typing.get_type_hints(type(self.config)), 'seed': int, 'nbest': int}
    values = {
      name: converted(hints[name], value, f'{prefix}{name}') for name, value in given.items()
    }
    seed = values.pop('seed', self.seed)
    nbest = values.pop('nbest', self.nbest)
    if values.get('sample'):
      # The run's beam size is for its search; the best of several samples is not a plain sample.
      values.setdefault('beam_size', 1)
      values.setdefault('search', 'default')
    config = dataclasses.replace(self.config, **values)
    drawing = [name for name in _SAMPLING if name in given]
    check_range(f'{prefix}seed', seed, least=0, below=2**32)
    check_range(f'{prefix}nbest', nbest, least=1)
    refuse(
      (
        nbest > config.beam_size,
        f'{prefix}nbest={nbest} needs as many beams, and there are {config.beam_size}; give '
        f'{prefix}beam_size={nbest}',
      ),
      (
        config.sample and config.search != 'default',
        f'{prefix}search and {prefix}sample exclude each other; leave one out',
      ),
      (
        drawing and not config.sample,
        f'{prefix}{f" and {prefix}".join(drawing)} needs {prefix}sample; without it nothing is '
        f'drawn',
      ),
    )
    return self._replace(config=config, seed=seed, nbest=nbest)
