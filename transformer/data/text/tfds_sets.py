"""TensorFlow Datasets translation sets at random access, without TensorFlow."""

import contextlib
import difflib
import glob
import hashlib
import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
import tensorflow_datasets.translate  # It registers the translation sets.
from etils import epath

# `tfds.builder` looks for an unknown set in a cloud bucket, and fails without TensorFlow. `naming`
# and `read_only_builder` are steps of `tfds.builder` that stay on this machine.
from tensorflow_datasets.core import naming, read_only_builder
from tensorflow_datasets.core.utils import file_utils

from transformer.data.config import DataConfig
from transformer.data.text.corpus import check_slice
from transformer.errors import UserError, message_in_one_line
from transformer.files import check_local

_NAMES_SHOWN = 5
_FLAG = '--config.data.name'
_RANDOM_ACCESS = ('array_record', 'parquet')


class TfdsCorpus:
  """One split of a translation set, as a `transformer.data.text.corpus.Corpus`."""

  notes, gold = (), None

  def __init__(self, config: DataConfig, split: str):
    """Opens a split.

    The fingerprint covers what TFDS records about a set (version, splits, number of examples
    and bytes of each shard) and not the text itself.

    Args:
      config: the set's name and folder, and both languages, which may be any of the set's.
      split: TFDS split, such as `train` or `train[:10%]`.

    Raises:
      UserError: the set, split or language does not exist; or the set is not prepared, is
        incomplete or empty, or is in a format without random access.
    """
    name, self._languages = config.name, (config.source_language, config.target_language)
    builder = find_builder(name, config.dir, _FLAG)
    present = languages_of(builder, name)
    if not set(self._languages) <= set(present):
      raise UserError(f'{name} must hold the languages {" and ".join(self._languages)}; '
                      f'it has {", ".join(present)}; set --config.data.source_language and '
                      '--config.data.target_language')
    if not is_prepared(builder):
      raise UserError(f'{name} is not prepared in {builder.data_dir_root}; '
                      f'run: {prepare_command(name, config.dir)}')
    require_random_access(builder, name, config.dir)
    _require_split(builder, name, split)
    record = {
        'set': builder.info.full_name,
        'split': split,
        'languages': list(self._languages),
        'splits': {key: [value.num_bytes, list(value.shard_lengths)]
                   for key, value in builder.info.splits.items()},
    }
    self.name = f'{name}:{split}'
    self.fingerprint = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    self.folder = Path(builder.data_path)
    self._examples: Sequence[dict[str, Any]] = builder.as_data_source(split)

  def __len__(self) -> int:
    return len(self._examples)

  def __getitem__(self, pairs: slice) -> list[tuple[str, str]]:
    numbers = range(*check_slice(pairs, len(self)))
    return list(map(self._pair, numbers, self._examples.__getitems__(numbers)))

  def _pair(self, index: int, example: dict[str, Any]) -> tuple[str, str]:
    try:
      source, target = (example[language].decode('utf-8') for language in self._languages)
    except UnicodeDecodeError as error:
      raise UserError(f'{self.name} must be UTF-8; example {index + 1} is not, at the byte '
                      f'0x{error.object[error.start]:02x}; prepare the set from other text'
                      ) from error
    return source, target


def find_builder(name: str, data_dir: str, flag: str) -> tfds.core.DatasetBuilder:
  """Returns the builder of a set, prepared or not: from TFDS's code, or from prepared files.

  Older versions, and sets whose code is not in TFDS, are found only as prepared files.
  """
  try:
    parsed, options = naming.parse_builder_name_kwargs(name)
  except ValueError as error:
    raise UserError(f'{flag} must look like set/config or set/config:version; '
                    f'got {name!r}') from error
  if parsed.namespace or set(options) - {'config', 'version'}:
    raise UserError(f'{flag} must look like set/config or set/config:version; got {name!r}')
  root = os.path.expanduser(data_dir) or None
  for folder in map(str, map(epath.Path, file_utils.list_data_dirs(root))):
    check_local('the folder of TFDS sets', folder)
    if glob.escape(folder) != folder:
      raise UserError(f'TFDS takes *, ? and [ in the path of a folder for a pattern, and finds no '
                      f'set there; got {folder}; rename the folder, or choose another --data_dir')
  builder = unknown = None
  try:
    builder = _builder_from_code(parsed.name, root, flag, **options)
  except UserError as error:
    unknown = error
  if not (builder and is_prepared(builder)):
    with contextlib.suppress(tfds.core.DatasetNotFoundError), _own_features_only():
      return read_only_builder.builder_from_files(name, data_dir=root)
  if unknown:
    raise unknown
  return builder


@contextlib.contextmanager
def _own_features_only():
  """Refuses a set whose files name a class outside TFDS, which TFDS would import and so run."""
  connector = tfds.features.FeatureConnector
  find = connector.__dict__['cls_from_name']

  def find_own(name: str):
    if not name.startswith('tensorflow_datasets.'):
      raise UserError(f'the set asks for {name!r} to be run, which is not part of TFDS; prepare '
                      f'the set with features of TFDS only')
    return find.__get__(None, connector)(name)

  connector.cls_from_name = staticmethod(find_own)
  try:
    yield
  finally:
    connector.cls_from_name = find


def _builder_from_code(set_name: str, root: str | None, flag: str, config: str | None = None,
                       version: str | None = None) -> tfds.core.DatasetBuilder:
  known = tfds.list_builders(with_community_datasets=False)
  if set_name not in known:
    raise UserError(f'{flag} must name a TFDS translation set; there is no {set_name!r}, and no '
                    f'prepared files of it; the nearest are {_nearest(set_name, known)}')
  cls = tfds.builder_cls(set_name)
  if config and config not in cls.builder_configs:
    nearest = _nearest(config, cls.builder_configs) or 'none'
    raise UserError(f'{set_name} has no config {config!r}; the nearest are {nearest}; '
                    f'set {flag}')
  try:
    return cls(data_dir=root, config=config, version=version)
  except (ValueError, AssertionError) as error:
    raise UserError(f'{set_name} cannot be opened: {message_in_one_line(error)}') from error


def languages_of(builder: tfds.core.DatasetBuilder, name: str) -> list[str]:
  """Returns the languages of a set.

  Raises:
    UserError: it is no translation set.
  """
  texts = [key for key, feature in builder.info.features.items()
           if isinstance(feature, tfds.features.Text)]
  if len(texts) < 2:
    raise UserError(f'{name} is not a translation set: it should hold a text in each of two '
                    f'languages; it holds {", ".join(builder.info.features)}')
  return texts


def is_prepared(builder: tfds.core.DatasetBuilder) -> bool:
  """Returns whether all files of a set are there."""
  # TFDS would warn about a missing folder.
  return builder.data_path.exists() and builder.is_prepared()


def require_random_access(builder: tfds.core.DatasetBuilder, name: str, data_dir: str):
  """Refuses a prepared set whose files can only be read in their order.

  Raises:
    UserError: says how the set is prepared anew.
  """
  formats = sorted(kind.value for kind in builder.info.available_file_formats())
  if not set(formats) & set(_RANDOM_ACCESS):
    raise UserError(
        f'{name} must be stored as array_record to be read at random access; {builder.data_path} '
        f'holds {", ".join(formats)}; remove that folder and '
        f'run: {prepare_command(name, data_dir)}')


def _require_split(builder: tfds.core.DatasetBuilder, name: str, split: str):
  try:
    parts = tfds.core.ReadInstruction.from_spec(split).to_absolute(builder.info.splits)
    info = builder.info.splits[split]
  except (ValueError, KeyError, NotImplementedError) as error:
    raise UserError(f'{name} has no split {split!r}; it has {", ".join(builder.info.splits)} '
                    f'({message_in_one_line(error)})') from error
  # TFDS reads other examples for a slice that ends before it begins.
  backwards = any(None not in (part.from_, part.to) and part.to < part.from_ for part in parts)
  if backwards or not info.num_examples:
    raise UserError(f'a corpus must hold at least one pair; {name}:{split} is empty')
  for instruction in info.file_instructions:
    if not os.path.exists(instruction.filename):
      raise UserError(f'{name}:{split} is incomplete: {instruction.filename} is missing; '
                      f'remove {builder.data_path} and prepare the set again')


def prepare_command(name: str, data_dir: str) -> str:
  """Returns the command that prepares a set."""
  command = ['python', '-m', 'transformer.tools.prepare', f'--name={name}']
  return shlex.join([*command, f'--data_dir={data_dir}'] if data_dir else command)


def _nearest(name: str, names) -> str:
  return ', '.join(difflib.get_close_matches(name, sorted(names), n=_NAMES_SHOWN, cutoff=0))
