"""All settings of a run, validated once and frozen.

`Config.from_dict` takes nested dicts, from an `ml_collections.ConfigDict` or a run's `config.json`.
All other code reads only the frozen dataclasses.
"""

import dataclasses
import operator
import re
from collections.abc import Iterator, Mapping
from typing import Any

from transformer import plugins
from transformer.config_fields import (
  check_ranges,
  config_field,
  parse_config,
  type_of_field,
)
from transformer.data.config import SOURCES, DataConfig
from transformer.decoding.config import DecodeConfig
from transformer.errors import UserError, short_repr
from transformer.model.config import ModelConfig
from transformer.training.config import (
  ALGORITHMS,
  SCHEDULES,
  MeshConfig,
  OptimizerConfig,
  TrainConfig,
)

# sacreBLEU's tokenizers for languages that are written without spaces between words, by all codes
# in use; `cn` and `jp` are country codes.
BLEU_TOKENIZERS = {
  'zh': 'zh zho chi cmn yue wuu hak nan gan hsn lzh cn chs cht zhs zht',
  'ja-mecab': 'ja jpn jp',
  'char': 'th tha lo lao km khm my mya bur bo bod tib dz dzo',
}
# The settings that may name plugins, the kind of each plugin, and the built-in values. A setting
# without built-in values names several plugins.
_PLUGIN_SETTINGS = (
  ('data.source', 'source', SOURCES),
  ('data.augmentations', 'augmentation', ()),
  ('model.module', 'model', ('',)),
  ('model.attention', 'attention', ('reference', 'cudnn')),
  ('optimizer.algorithm', 'algorithm', ALGORITHMS),
  ('optimizer.schedule', 'schedule', SCHEDULES),
  ('train.objective', 'objective', ('',)),
  ('train.valid_metric', 'metric', ('',)),
  ('train.trackers', 'tracker', ()),
  ('decode.search', 'search', ('default',)),
)


@dataclasses.dataclass(frozen=True)
class Config:
  """All settings of a run, by group; the defaults are the paper's base model.

  Attributes:
    data: the corpus, its vocabulary and its maximum lengths.
    model: the architecture and size of the Transformer.
    optimizer: the optimizer and its learning rate.
    train: the length of the run, its batches, evaluations and checkpoints.
    decode: how translations are searched for and scored.
    mesh: how arrays are split over devices.
    seed: root of all random numbers: initial parameters, data order, dropout and sampling.
  """

  data: DataConfig = DataConfig()
  model: ModelConfig = ModelConfig()
  optimizer: OptimizerConfig = OptimizerConfig()
  train: TrainConfig = TrainConfig()
  decode: DecodeConfig = DecodeConfig()
  mesh: MeshConfig = MeshConfig()
  seed: int = config_field(0, min=0, below=2**32)

  def __post_init__(self):
    data = self.data
    train = self.train
    model = self.model
    check_ranges(self)
    for key, value, _, builtin in self._plugin_settings():
      plugins.check(key, value, builtin)
    tokens = train.tokens_per_batch
    length = data.max_length
    if tokens % length:
      raise UserError(
        'train.tokens_per_batch must be a multiple of data.max_length, the target positions per '
        f'row; got tokens_per_batch={tokens}, max_length={length}'
      )
    if tokens // length % self.optimizer.num_microbatches:
      raise UserError(
        f'optimizer.num_microbatches must divide the rows of a batch, tokens_per_batch / '
        f'max_length = {tokens // length}; got {self.optimizer.num_microbatches}'
      )
    reach = length + self.decode.max_extra_length
    if model.positions == 'learned' and model.max_positions < reach:
      raise UserError(
        f'model.max_positions must reach data.max_length + decode.max_extra_length '
        f'= {reach} when positions are learned; got {model.max_positions}'
      )
    others = list(data.valid_sets.values())[1:]
    if train.best_by.rpartition('/')[0] not in ('', *others):
      raise UserError(
        'train.best_by must be METRIC, or SET/METRIC with a validation set after the first of '
        f'data.valid ({", ".join(others) or "none"}); got {short_repr(train.best_by)}'
      )
    if model.attention == 'cudnn' and length % 2:
      raise UserError(
        f'data.max_length must be even with model.attention=cudnn, whose kernel '
        f'takes masks of even lengths; got {length}'
      )
    if not data.shared_vocabulary and model.share_embeddings:
      raise UserError(
        'data.shared_vocabulary=False requires separate embeddings; set '
        '--config.model.share_embeddings=False'
      )

  def warnings(self) -> list[str]:
    """Returns warnings about valid settings that are probably unintended."""
    optimizer = self.optimizer
    steps = self.train.steps
    ignored = optimizer.ignored_rate_key
    warnings = []
    if optimizer.warmup_steps >= steps:
      warnings.append(
        'the learning rate is still warming up at the last step: '
        f'optimizer.warmup_steps={optimizer.warmup_steps}, train.steps={steps}'
      )
    if ignored and getattr(optimizer, ignored) != getattr(OptimizerConfig, ignored):
      warnings.append(
        f'optimizer.{ignored} has no effect with optimizer.schedule={optimizer.schedule}; '
        'noam uses optimizer.noam_scale, the others optimizer.peak_learning_rate'
      )
    return warnings + self.bleu_warnings()

  def bleu_warnings(self) -> list[str]:
    """Returns [warning] if BLEU's tokenizer needs spaces that the target language lacks, or []."""
    language = re.split('[-_]', self.data.target_language.lower())[0]
    if self.decode.bleu_tokenize not in ('13a', 'intl'):
      return []
    return [
      f'decode.bleu_tokenize={self.decode.bleu_tokenize} counts a line without spaces as one '
      f'word, so BLEU is unreliable for {self.data.target_language}; set '
      f'decode.bleu_tokenize={tokenizer} (--bleu_tokenize of eval.py)'
      for tokenizer, codes in BLEU_TOKENIZERS.items()
      if language in codes.split()
    ]

  @property
  def plugin_kinds(self) -> dict[str, str]:
    """The plugins that training imports: the kind of each MODULE:NAME."""
    return {
      plugins.name_of(value): kind
      for _, value, kind, builtin in self._plugin_settings()
      if value not in tuple(builtin)  # A tuple with a dict is not hashable.
    }

  def _plugin_settings(self) -> Iterator[tuple]:
    """Yields each setting that may name a plugin: key, value, kind, and built-in values."""
    for key, kind, builtin in _PLUGIN_SETTINGS:
      value = operator.attrgetter(key)(self)
      for part in (value,) if builtin else value:
        yield key, part, kind, builtin

  @property
  def rows_per_microbatch(self) -> int:
    """The rows of a microbatch, which go through the model at a time."""
    return (
      self.train.tokens_per_batch
      // self.data.max_length
      // self.optimizer.num_microbatches
    )

  @classmethod
  def from_dict(cls, tree: Mapping) -> 'Config':
    """Returns the frozen settings; raises `UserError` for an invalid name, type or value."""
    return parse_config(cls, tree)

  def to_dict(self) -> dict:
    """Returns the settings as nested dicts, which `from_dict` reads."""
    return dataclasses.asdict(self)


def flatten(tree: Mapping, prefix: str = '') -> dict:
  """Returns nested dicts as one dict with dotted names, such as `train.steps`."""
  flat = {}
  for name, value in tree.items():
    if isinstance(value, Mapping):
      flat.update(flatten(value, f'{prefix}{name}.'))
    else:
      flat[prefix + name] = value
  return flat


def type_of_setting(name: str) -> Any:
  """Returns the type of a key or group by its dotted name; raises `UserError` if it is unknown."""
  kind = Config
  prefix = ''
  for part in name.split('.'):
    if not dataclasses.is_dataclass(kind):
      raise UserError(f'there is no key config.{name}; config.{prefix[:-1]} is a value')
    kind = type_of_field(kind, part, prefix)
    prefix = f'{prefix}{part}.'
  return kind
