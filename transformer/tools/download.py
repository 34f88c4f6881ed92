"""Downloads a TFDS translation dataset, and writes it in a format with random access.

python -m transformer.tools.download --name=wmt14_translate/de-en --data_dir=DIR
"""

import contextlib
import difflib
import logging
import os
import shlex
import sys
import types

import tensorflow_datasets as tfds
import tensorflow_datasets.translate  # Registers the translation datasets.
from absl import flags
from tensorflow_datasets.core.download import downloader, extractor

from transformer import files
from transformer.data.text.tfds_corpus import languages_of, open_dataset
from transformer.errors import UserError, short_repr, type_and_message
from transformer.system import command_line

_NAME = flags.DEFINE_string(
  'name', None, 'TFDS name of the dataset, such as wmt14_translate/de-en.'
)
_DATA_DIR = flags.DEFINE_string(
  'data_dir', '', 'The folder to write to (default: ~/tensorflow_datasets, as in TFDS).'
)
_RETRIES = 5  # 5 retries take 6 seconds; the default of TFDS, 10, takes 3.5 minutes.
# The TensorFlow functions that TFDS 4.9.10 uses to unpack archives: decoding file names, and
# opening files.
_FILES = types.SimpleNamespace(
  compat=types.SimpleNamespace(as_text=os.fsdecode),
  io=types.SimpleNamespace(gfile=types.SimpleNamespace(GFile=open)),
)


def main(_):
  """Prepares the dataset given by flags; prints its folder and the sizes of its splits."""
  if not _NAME.value:
    raise UserError(
      '--name is missing; pass the TFDS name of a dataset, such as wmt14_translate/de-en'
    )
  builder = prepare(_NAME.value, _DATA_DIR.value)
  sizes = [
    f'{name} {split.num_examples:,}' for name, split in builder.info.splits.items()
  ]
  print(f'{_NAME.value} is in {builder.data_path}: {", ".join(sizes)}')


def prepare(name: str, data_dir: str = '') -> tfds.core.DatasetBuilder:
  """Downloads a dataset and writes it for random access; returns it, even if it already exists."""
  prepared = open_dataset(name, data_dir)
  if prepared is None:
    builder = _builder(name, data_dir)
    languages_of(builder, name)
    _download(builder, name, data_dir)
    prepared = open_dataset(name, data_dir)
    if prepared is None:
      raise UserError(
        f'{builder.data_path} should hold {name} but is incomplete; remove it and '
        f'run: {_command(name, data_dir)}'
      )
  languages_of(prepared, name)
  return prepared


def _builder(name: str, data_dir: str) -> tfds.core.DatasetBuilder:
  """Returns TFDS's builder of a dataset."""
  folder = os.fspath(files.as_path(data_dir)) if data_dir else None
  try:
    return tfds.builder(name, data_dir=folder)
  except tfds.core.DatasetNotFoundError as error:
    names = tfds.list_builders(with_community_datasets=False)
    nearest = difflib.get_close_matches(name, names, n=5, cutoff=0)
    raise UserError(
      f'--name must name a TFDS translation dataset; there is no {short_repr(name)}; the '
      'nearest are '
      f'{", ".join(nearest)}'
    ) from error
  except (ValueError, AssertionError) as error:
    raise UserError(f'{name} cannot be opened: {type_and_message(error)}') from error


def _download(builder: tfds.core.DatasetBuilder, name: str, data_dir: str):
  """Downloads and writes a dataset; raises `UserError` with the reason on failure."""
  downloader.MAX_RETRIES = _RETRIES
  extractor.tf = _FILES
  logging.getLogger('urllib3').setLevel(logging.ERROR)
  if not sys.stderr.isatty():
    tfds.disable_progress_bar()
  try:
    # TFDS prints progress to standard output, which may be used for translations.
    with contextlib.redirect_stdout(sys.stderr):
      builder.download_and_prepare(
        file_format='array_record',
        download_config=tfds.download.DownloadConfig(try_download_gcs=False),
      )
  except downloader.requests.ConnectionError as error:
    # An error in the middle of a download does not name the file.
    server = error.request.url if error.request else 'the server'
    raise UserError(
      f'{name} cannot be downloaded: {server} cannot be reached '
      f'({type(error).__name__}); check the network, and run: '
      f'{_command(name, data_dir)}'
    ) from error
  except Exception as error:
    # Too little disk space, a missing package, a corrupt archive and others. Another process may
    # have prepared the same dataset in the meantime.
    if open_dataset(name, data_dir) is None:
      raise UserError(
        f'{name} could not be prepared in {builder.data_dir_root}: {type_and_message(error)}'
      ) from error


def _command(name: str, data_dir: str) -> str:
  """Returns the command that prepares a dataset."""
  command = ['python', '-m', 'transformer.tools.download', f'--name={name}']
  return shlex.join([*command, f'--data_dir={data_dir}'] if data_dir else command)


start = command_line.entry_point(main)  # `attention-download` calls it.

if __name__ == '__main__':
  start()
