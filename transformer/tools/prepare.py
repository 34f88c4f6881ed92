"""Downloads a TFDS translation set, and writes it in a format with random access.

python -m transformer.tools.prepare --name=wmt14_translate/de-en --data_dir=DIR
"""

import contextlib
import difflib
import logging
import os
import shlex
import sys
import types

import tensorflow_datasets as tfds
import tensorflow_datasets.translate  # It registers the translation sets.
from absl import flags
from tensorflow_datasets.core.download import downloader, extractor

from transformer import files
from transformer.data.text.tfds_sets import languages_of, open_set
from transformer.errors import UserError, shown, type_and_message
from transformer.system import command_line

_NAME = flags.DEFINE_string(
  'name', None, 'TFDS name of the set, such as wmt14_translate/de-en.'
)
_DATA_DIR = flags.DEFINE_string(
  'data_dir', '', 'The folder to write to; default: ~/tensorflow_datasets, as in TFDS.'
)
_RETRIES = 5  # They take 6 seconds, and TFDS's own 10 take 3.5 minutes.
# What TFDS 4.9.10 takes from TensorFlow to unpack archives: names of files as text, and opening
# them.
_FILES = types.SimpleNamespace(
  compat=types.SimpleNamespace(as_text=os.fsdecode),
  io=types.SimpleNamespace(gfile=types.SimpleNamespace(GFile=open)),
)


def main(_):
  """Prepares the set of the flags, and prints its folder and the sizes of its splits."""
  if not _NAME.value:
    raise UserError(
      '--name=SET is needed, the TFDS name of a set such as wmt14_translate/de-en'
    )
  builder = prepare(_NAME.value, _DATA_DIR.value)
  sizes = [
    f'{name} {split.num_examples:,}' for name, split in builder.info.splits.items()
  ]
  print(f'{_NAME.value} lies in {builder.data_path}: {", ".join(sizes)}')


def prepare(name: str, data_dir: str = '') -> tfds.core.DatasetBuilder:
  """Downloads a set and writes it for random access, unless it is prepared already."""
  prepared = open_set(name, data_dir)
  if prepared is None:
    builder = _builder(name, data_dir)
    languages_of(builder, name)
    _download(builder, name, data_dir)
    prepared = open_set(name, data_dir)
    if prepared is None:
      raise UserError(
        f'{builder.data_path} should hold {name} but is incomplete; remove it and '
        f'run: {_command(name, data_dir)}'
      )
  languages_of(prepared, name)
  return prepared


def _builder(name: str, data_dir: str) -> tfds.core.DatasetBuilder:
  """Returns the builder of a set by TFDS's code."""
  folder = os.fspath(files.as_path(data_dir)) if data_dir else None
  try:
    return tfds.builder(name, data_dir=folder)
  except tfds.core.DatasetNotFoundError as error:
    known = tfds.list_builders(with_community_datasets=False)
    nearest = difflib.get_close_matches(name, known, n=5, cutoff=0)
    raise UserError(
      f'--name must name a TFDS translation set; there is no {shown(name)}; the '
      f'nearest are {", ".join(nearest)}'
    ) from error
  except (ValueError, AssertionError) as error:
    raise UserError(f'{name} cannot be opened: {type_and_message(error)}') from error


def _download(builder: tfds.core.DatasetBuilder, name: str, data_dir: str):
  """Downloads and writes a set; raises `UserError` with the reason if that fails."""
  downloader.MAX_RETRIES = _RETRIES
  extractor.tf = _FILES
  logging.getLogger('urllib3').setLevel(logging.ERROR)
  if not sys.stderr.isatty():
    tfds.disable_progress_bar()
  try:
    # TFDS prints its progress, and standard output may be for translations.
    with contextlib.redirect_stdout(sys.stderr):
      builder.download_and_prepare(
        file_format='array_record',
        download_config=tfds.download.DownloadConfig(try_download_gcs=False),
      )
  except downloader.requests.ConnectionError as error:
    # An error in the middle of a download does not say of which file.
    where = error.request.url if error.request else 'the server'
    raise UserError(
      f'{name} cannot be downloaded: {where} cannot be reached '
      f'({type(error).__name__}); check the network, and run: '
      f'{_command(name, data_dir)}'
    ) from error
  except Exception as error:
    # A lack of disk space or of a package, a damaged archive and more. Another process may have
    # finished the same set in the meantime.
    if open_set(name, data_dir) is None:
      raise UserError(
        f'{name} could not be prepared in {builder.data_dir_root}: {type_and_message(error)}'
      ) from error


def _command(name: str, data_dir: str) -> str:
  """Returns the command that prepares a set."""
  command = ['python', '-m', 'transformer.tools.prepare', f'--name={name}']
  return shlex.join([*command, f'--data_dir={data_dir}'] if data_dir else command)


start = command_line.starter(main)  # `attention-prepare` calls it.

if __name__ == '__main__':
  start()
