"""All settings of a run, checked once and frozen.

`Config.from_dict` takes nested dicts, from an `ml_collections.ConfigDict` or a run's
`config.json`. All other code sees only the frozen dataclasses.
"""

import dataclasses
import difflib
import re
import reprlib
import types
import typing
import unicodedata
from collections.abc import Mapping
from typing import Any

from transformer import files, old_settings, own_code
from transformer.data.config import DataConfig
from transformer.decoding.config import DecodeConfig
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.training.config import (
  ALGORITHMS,
  SCHEDULES,
  MeshConfig,
  OptimizerConfig,
  TrainConfig,
)

# Larger than any useful setting, and small enough that sums fit into 32 bits.
_LARGEST, _LARGEST_SEED = 10**9, 2**32
# Unicode categories that break a line or a file name: controls, separators, surrogates.
_FORBIDDEN = {'Cc', 'Cs', 'Zl', 'Zp'}
_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 100


# Languages that are written without spaces between words, by all codes in use (`cn` and `jp` are
# of countries), and the tokenizer of sacreBLEU for each.
_WITHOUT_SPACES = {
    code: tokenizer for codes, tokenizer in (
        ('zh zho chi cmn yue wuu hak nan gan hsn lzh cn chs cht zhs zht', 'zh'),
        ('ja jpn jp', 'ja-mecab'),
        ('th tha lo lao km khm my mya bur bo bod tib dzo', 'char')) for code in codes.split()}


@dataclasses.dataclass(frozen=True)
class Config:
  """All settings of a run, by group; the defaults are the paper's base model.

  Attributes:
    data: the text, its vocabulary and its lengths.
    model: the shape of the Transformer.
    optimizer: the optimizer and its learning rate.
    train: the length of the run, its batches, evaluations and checkpoints.
    decode: how translations are searched for and scored.
    mesh: how arrays are split over devices.
    seed: root of all random numbers: parameters, order of the data, dropout and sampling.
  """

  data: DataConfig = dataclasses.field(default_factory=DataConfig)
  model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
  optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
  train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
  decode: DecodeConfig = dataclasses.field(default_factory=DecodeConfig)
  mesh: MeshConfig = dataclasses.field(default_factory=MeshConfig)
  seed: int = 0

  def __post_init__(self):
    data, train = self.data, self.train
    for name, path in (('data.dir', data.dir), ('data.vocabulary', data.vocabulary),
                       ('data.source_vocabulary', data.source_vocabulary),
                       ('train.init_from', train.init_from),
                       *(('train.objective_runs', path) for path in train.objective_runs)):
      files.check_local(name, path)
    for variation in data.variations:
      own_code.check('an item of data.variations', variation)
    if train.objective != '':
      own_code.check('train.objective', train.objective)
    for name, named in (('schedule', SCHEDULES), ('algorithm', ALGORITHMS)):
      if (value := getattr(self.optimizer, name)) not in named:
        own_code.check(f'optimizer.{name}', value, named)
    tokens, length = train.tokens_per_batch, data.max_length
    if tokens % length:
      raise UserError(f'train.tokens_per_batch must be a multiple of data.max_length, the target '
                      f'positions in a row; got tokens_per_batch={tokens}, max_length={length}')
    if tokens // length % self.optimizer.accumulate:
      raise UserError(f'optimizer.accumulate must divide the rows of a batch, tokens_per_batch / '
                      f'max_length = {tokens // length}; got {self.optimizer.accumulate}')
    reach = length + self.decode.max_extra_length
    if self.model.positions == 'learned' and self.model.max_positions < reach:
      raise UserError(f'model.max_positions must reach data.max_length + decode.max_extra_length '
                      f'= {reach} when positions are learned; got {self.model.max_positions}')
    decides = self.train.best_by.rpartition('/')[0]
    others = list(self.data.valid_sets.values())[1:]
    if decides and decides not in others:
      raise UserError(f'train.best_by names a validation set that is not the first as SET/METRIC; '
                      f'the sets after the first of data.valid are {", ".join(others) or "none"}; '
                      f'got {self.train.best_by!r}')
    if self.model.attention == 'cudnn' and length % 2:
      raise UserError(f'data.max_length must be even with model.attention=cudnn, whose kernel '
                      f'takes masks of even lengths; got {length}')
    if not self.data.shared_vocabulary and self.model.share_embeddings:
      raise UserError('data.shared_vocabulary=False gives each language its own embeddings; set '
                      '--config.model.share_embeddings=False')
    if not 0 <= self.seed < 2 ** 32:
      raise UserError(f'seed must be at least 0 and below 2³²; got {self.seed}')

  def doubts(self) -> list[str]:
    """Returns sentences about settings that are allowed, and probably not what was meant."""
    optimizer, found = self.optimizer, []
    if optimizer.warmup_steps >= self.train.steps:
      found.append(f'the learning rate is still warming up at the end: optimizer.warmup_steps='
                   f'{optimizer.warmup_steps}, train.steps={self.train.steps}')
    ignored = optimizer.ignored_rate_key
    if ignored and getattr(optimizer, ignored) != getattr(OptimizerConfig, ignored):
      found.append(f'optimizer.{ignored}={getattr(optimizer, ignored):g} does nothing with '
                   f'optimizer.schedule='
                   f'{optimizer.schedule}; the paper\'s schedule has optimizer.scale, the others '
                   f'optimizer.peak_learning_rate')
    if late := [stage[0] for stage in self.data.train_stages if stage[0] >= self.train.steps]:
      found.append(f'the stage of data.train_stages that begins after {late[0]:g} updates is never '
                   f'reached: train.steps={self.train.steps}')
    data = self.data
    weights = (*data.train_weights, *(each for stage in data.train_stages for each in stage[1:]))
    if self.train.tokens_per_batch == data.max_length and (
        data.bpe_dropout or data.variations
        or any(weight % 1 for weight in weights)):
      found.append(f'a batch has a single row, which is sometimes empty where sentences vary or a '
                   f'weight is no whole number; an update then learns nothing: set '
                   f'train.tokens_per_batch to at least {2 * data.max_length}')
    if self.data.drop_identical and not self.data.shared_vocabulary:
      found.append('data.drop_identical compares tokens, which separate vocabularies number '
                   'differently, so it drops nothing; remove such pairs from the text (the audit '
                   'counts them)')
    return found + self.doubts_of_bleu()

  def doubts_of_bleu(self) -> list[str]:
    """Returns a sentence if BLEU's tokenizer needs spaces that the target language lacks."""
    language = re.split('[-_]', self.data.target_language.lower())[0]
    if language not in _WITHOUT_SPACES or self.decode.bleu_tokenize not in ('13a', 'intl'):
      return []
    return [f'decode.bleu_tokenize={self.decode.bleu_tokenize} counts a line without spaces as one '
            f'word, so BLEU says little about {self.data.target_language}; set '
            f'decode.bleu_tokenize={_WITHOUT_SPACES[language]} (--bleu_tokenize of eval.py)']

  @property
  def own_code(self) -> dict[str, str]:
    """The parts of one's own that training imports: what each MODULE:NAME is."""
    kinds = {self.data.source: 'source', self.train.valid_metric: 'metric',
             own_code.name_of(self.train.objective): 'objective',
             own_code.name_of(self.optimizer.schedule): 'schedule',
             own_code.name_of(self.optimizer.algorithm): 'algorithm'} | {
        own_code.name_of(setting): 'variation' for setting in self.data.variations}
    return {spec: kind for spec, kind in kinds.items() if ':' in spec}

  @property
  def rows_at_once(self) -> int:
    """The rows of a batch that go through the model at a time."""
    return self.train.tokens_per_batch // self.data.max_length // self.optimizer.accumulate

  @classmethod
  def from_dict(cls, tree: Mapping[str, Any]) -> 'Config':
    """Checks names, types and values, and returns the frozen settings.

    Args:
      tree: nested dicts by group; missing keys take their defaults.

    Raises:
      UserError: a name does not exist, or a value has another type or is out of range.
    """
    return _freeze(cls, tree, '')

  @classmethod
  def from_saved(cls, tree: Mapping[str, Any]) -> 'Config':
    """Returns the settings that a run was saved with, by this or an earlier version.

    Args:
      tree: nested dicts by group, as `old_settings.as_of_now` takes them.

    Raises:
      UserError: as `from_dict`.
    """
    return cls.from_dict(old_settings.as_of_now(tree))

  def to_dict(self) -> dict[str, Any]:
    """Returns nested dicts, which `from_dict` reads."""
    return dataclasses.asdict(self)


def flatten(tree: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
  """Returns nested dicts as one dict with dotted names, such as `train.steps`."""
  flat = {}
  for name, value in tree.items():
    if isinstance(value, Mapping):
      flat.update(flatten(value, f'{prefix}{name}.'))
    else:
      flat[prefix + name] = value
  return flat


def check_name(name: str):
  """Checks that a dotted name, such as `train.steps`, is a key or a group.

  Raises:
    UserError: the name is neither; the message suggests the nearest name.
  """
  _kind_of(name)


def check_value(name: str, value: Any):
  """Checks the type of one key's value, without the rules of its group.

  Args:
    name: dotted name of the key, such as `train.steps`.
    value: its value.

  Raises:
    UserError: there is no such key, or the value has another type.
  """
  kind = _kind_of(name)
  if dataclasses.is_dataclass(kind):
    raise UserError(f'config.{name} is a group of keys, which are set one by one; got '
                    f'{_shown(value)}')
  _convert(kind, value, f'config.{name}')


def _kind_of(name: str):
  """Returns the type annotation of a key or a group."""
  kind, prefix = Config, ''
  for part in name.split('.'):
    kinds = typing.get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
    if not kinds:
      raise UserError(f'there is no key config.{name}; config.{prefix[:-1]} is a value')
    if part not in kinds:
      raise UserError(_unknown(part, kinds, prefix))
    kind, prefix = kinds[part], f'{prefix}{part}.'
  return kind


def _freeze(cls, tree, prefix):
  """Builds the dataclass `cls` from a mapping; `prefix` is its dotted name for errors."""
  if not isinstance(tree, Mapping):
    raise UserError(f'config.{prefix.rstrip(".")} must be a group of keys; '
                    f'got {_shown(tree)}')
  kinds = typing.get_type_hints(cls)
  values = {}
  for name, value in tree.items():
    if not isinstance(name, str):
      raise UserError(f'the names of keys must be text; got {_shown(name)} in '
                      f'config.{prefix}'.rstrip('.'))
    if name not in kinds:
      raise UserError(_unknown(name, kinds, prefix))
    kind = kinds[name]
    if dataclasses.is_dataclass(kind):
      values[name] = _freeze(kind, value, f'{prefix}{name}.')
    else:
      values[name] = _convert(kind, value, f'config.{prefix}{name}')
  return cls(**values)


def _unknown(name, known, prefix):
  """Returns the message for a key that does not exist."""
  nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
  hint = old_settings.hint_of_ended(f'{prefix}{name}') or (
      f'did you mean config.{prefix}{nearest[0]}?' if nearest
      else f'the keys there are {", ".join(known)}')
  shown = name if name.isprintable() else _shown(name)
  return f'there is no key config.{prefix}{shown}; {hint}'


def _convert(kind, value, name):
  """Returns `value` as the annotated type; only lossless conversions are made."""
  origin = typing.get_origin(kind)
  if origin is types.UnionType:
    kinds = [each for each in typing.get_args(kind) if each is not types.NoneType]
    if value is None and len(kinds) < len(typing.get_args(kind)):
      return None
    several = isinstance(value, (tuple, list))
    kinds = [each for each in kinds if (typing.get_origin(each) is tuple) == several] or kinds
    kind = next((each for each in kinds if not several and isinstance(value, each)), kinds[-1])
    origin = typing.get_origin(kind)
  if origin is tuple:
    if not isinstance(value, (tuple, list)):
      raise UserError(f'{name} must be a tuple; got {_shown(value)}')
    item = typing.get_args(kind)[0]
    return tuple(_convert(item, each, f'an item of {name}') for each in value)
  if isinstance(value, int):
    largest = _LARGEST_SEED if name == 'config.seed' else _LARGEST
    if abs(value) > largest:
      raise UserError(f'{name} must lie within ±{largest:,}; got {_shown(value)}')
  if kind is float and isinstance(value, int) and not isinstance(value, bool):
    return float(value)
  if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
    # On the command line, 2019 is a number.
    hint = ''
    if kind is str and type(value) in (int, float):
      hint = f'; text that looks like a number needs quotes of its own, as in "\'{value}\'"'
    raise UserError(f'{name} must be of type {kind.__name__}; got {_shown(value)}{hint}')
  if kind is str and not _FORBIDDEN.isdisjoint(map(unicodedata.category, value)):
    raise UserError(f'{name} must be text on one line; got {_shown(value)}')
  return value


def _shown(value) -> str:
  """Returns any value as one short line of text."""
  try:
    return ' '.join(_brief.repr(value).splitlines())
  except ValueError:  # Python refuses to print integers of thousands of digits.
    return f'one of type {type(value).__name__} that is too long to show'
