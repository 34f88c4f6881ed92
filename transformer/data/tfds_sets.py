"""TensorFlow Datasets translation sets at random access, without TensorFlow."""

import contextlib
import difflib
import glob
import hashlib
import importlib.util
import json
import logging
import os
import shlex
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
import tensorflow_datasets.translate  # It registers the translation sets.
from etils import epath

# `tfds.builder` looks for an unknown set in a cloud bucket, and fails without TensorFlow. `naming`
# and `read_only_builder` are steps of `tfds.builder` that stay on this machine.
from tensorflow_datasets.core import naming, read_only_builder
from tensorflow_datasets.core.download import downloader, extractor
from tensorflow_datasets.core.utils import file_utils

from transformer.data.config import DataConfig
from transformer.data.corpus import check_index, check_slice
from transformer.errors import UserError, message_in_one_line
from transformer.files import check_local

_NAMES_SHOWN = 5
_FLAG = '--config.data.name'
# Each retry waits twice as long as the one before. These 5 take 6 seconds; TFDS's own
# 10 take 3.5 minutes.
_RETRIES = 5
_RANDOM_ACCESS = ('array_record', 'parquet')
# Errors for a lack of network, disk space, permission or a manual download; a damaged archive.
_PREPARATION_ERRORS = (OSError, AssertionError, tfds.download.DownloadError,
                       extractor.ExtractError,
                       tfds.download.download_manager.NonMatchingChecksumError)
# What TFDS takes from TensorFlow to unpack archives: names of files as text, and opening them.
_FILES = types.SimpleNamespace(
    compat=types.SimpleNamespace(as_text=os.fsdecode),
    io=types.SimpleNamespace(gfile=types.SimpleNamespace(GFile=open)))


class TfdsCorpus:
  """One split of a translation set, as a `transformer.data.corpus.Corpus`."""

  notes = ()

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
    builder = _find_builder(name, config.dir, _FLAG)
    present = _languages(builder, name)
    if not set(self._languages) <= set(present):
      raise UserError(f'{name} must hold the languages {" and ".join(self._languages)}; '
                      f'it has {", ".join(present)}; set --config.data.source_language and '
                      '--config.data.target_language')
    if not _is_prepared(builder):
      raise UserError(f'{name} is not prepared in {builder.data_dir_root}; '
                      f'run: {_prepare_command(name, config.dir)}')
    _require_random_access(builder, name, config.dir)
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

  def __getitem__(self, index):
    if not isinstance(index, slice):
      index = check_index(index, len(self))
      return self._pair(index, self._examples[index])
    numbers = range(*check_slice(index, len(self)))
    examples = self._examples.__getitems__(numbers)
    return [self._pair(*each) for each in zip(numbers, examples, strict=True)]

  def _pair(self, index: int, example: dict[str, Any]) -> tuple[str, str]:
    try:
      source, target = (example[language].decode('utf-8') for language in self._languages)
    except UnicodeDecodeError as error:
      raise UserError(f'{self.name} must be UTF-8; example {index + 1} is not, at the byte '
                      f'0x{error.object[error.start]:02x}; prepare the set from other text'
                      ) from error
    return source, target


def prepare(name: str, data_dir: str = '', flag: str = '--name') -> tfds.core.DatasetBuilder:
  """Downloads a set and writes it for random access, unless it is prepared already.

  TFDS gives the folder its name at the end, so an interrupted preparation leaves no
  incomplete set.

  Args:
    name: TFDS name.
    data_dir: the folder of prepared sets; empty means TFDS's default.
    flag: the flag for the name, for error messages.

  Raises:
    UserError: there is no such translation set, or it cannot be downloaded or written.
  """
  builder = _find_builder(name, data_dir, flag)
  _languages(builder, name)
  if _is_prepared(builder):
    _require_random_access(builder, name, data_dir)
    return builder
  if importlib.util.find_spec('importlib_resources') is None:
    raise UserError(f'preparing {name} needs the package importlib_resources, which is not '
                    'installed; run: pip install importlib_resources')
  if not sys.stderr.isatty():
    tfds.disable_progress_bar()
  try:
    # TFDS prints its progress, and standard output may be for translations.
    with contextlib.redirect_stdout(sys.stderr), _few_retries(), _unpacking_without_tensorflow():
      builder.download_and_prepare(
          file_format='array_record',
          download_config=tfds.download.DownloadConfig(try_download_gcs=False))
  except ImportError as error:
    raise UserError(f'preparing {name} needs the package {error.name}, which cannot be imported; '
                    f'run: pip install {error.name}') from error
  except downloader.requests.ConnectionError as error:
    # An error in the middle of a download does not say of which file.
    where = error.request.url if error.request else 'the server'
    raise UserError(f'{name} cannot be downloaded: {where} cannot be reached '
                    f'({type(error).__name__}); check the network, and run: '
                    f'{_prepare_command(name, data_dir)}') from error
  except _PREPARATION_ERRORS as error:
    # Another process may have finished the same set in the meantime.
    builder = _find_builder(name, data_dir, flag)
    if not _is_prepared(builder):
      raise UserError(f'{name} could not be prepared in {builder.data_dir_root}: '
                      f'{message_in_one_line(error)}') from error
  builder = _find_builder(name, data_dir, flag)
  if not _is_prepared(builder):
    raise UserError(f'{builder.data_path} should hold {name} but is incomplete; remove it and '
                    f'run: {_prepare_command(name, data_dir)}')
  return builder


@contextlib.contextmanager
def _few_retries():
  """Limits TFDS's retries without a network to seconds, and silences their warnings."""
  log = logging.getLogger('urllib3')
  retries, level = downloader.MAX_RETRIES, log.level
  downloader.MAX_RETRIES = _RETRIES
  log.setLevel(logging.ERROR)
  try:
    yield
  finally:
    downloader.MAX_RETRIES = retries
    log.setLevel(level)


@contextlib.contextmanager
def _unpacking_without_tensorflow():
  """Lets TFDS unpack archives by Python's own files."""
  module, extractor.tf = extractor.tf, _FILES
  try:
    yield
  finally:
    extractor.tf = module


def _find_builder(name: str, data_dir: str, flag: str) -> tfds.core.DatasetBuilder:
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
  if not (builder and _is_prepared(builder)):
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


def _languages(builder: tfds.core.DatasetBuilder, name: str) -> list[str]:
  texts = [key for key, feature in builder.info.features.items()
           if isinstance(feature, tfds.features.Text)]
  if len(texts) < 2:
    raise UserError(f'{name} is not a translation set: it should hold a text in each of two '
                    f'languages; it holds {", ".join(builder.info.features)}')
  return texts


def _is_prepared(builder: tfds.core.DatasetBuilder) -> bool:
  # TFDS would warn about a missing folder.
  return builder.data_path.exists() and builder.is_prepared()


def _require_random_access(builder: tfds.core.DatasetBuilder, name: str, data_dir: str):
  formats = sorted(each.value for each in builder.info.available_file_formats())
  if not set(formats) & set(_RANDOM_ACCESS):
    raise UserError(
        f'{name} must be stored as array_record to be read at random access; {builder.data_path} '
        f'holds {", ".join(formats)}; remove that folder and '
        f'run: {_prepare_command(name, data_dir)}')


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


def _prepare_command(name: str, data_dir: str) -> str:
  command = ['python', '-m', 'transformer.tools.prepare', f'--name={name}']
  return shlex.join([*command, f'--data_dir={data_dir}'] if data_dir else command)


def _nearest(name: str, names) -> str:
  return ', '.join(difflib.get_close_matches(name, sorted(names), n=_NAMES_SHOWN, cutoff=0))
