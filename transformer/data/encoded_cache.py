"""Encoded corpora on disk: encoded once, then read a sentence at a time.

An encoding is the folder `encoded/KEY/` beside its corpus:

| file | holds |
| --- | --- |
| `{source,target}_tokens.npy` | the tokens of all sentences, end to end |
| `{source,target}_lengths.npy` | the number of tokens of each sentence |
| `about.json` | digests of corpus and vocabulary, and the size and SHA-256 of each file |

The key is a digest of the corpus and the vocabulary, so a change of either makes another folder. A
folder that is no longer needed may be deleted at any time. Tokens are mapped into memory: what is
read of them counts as memory of the process, but the system drops it where memory is short.
"""

import contextlib
import fcntl
import hashlib
import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np
from absl import logging

from transformer import files
from transformer.data.encoding import (
  EncodedPairs,
  Sentences,
  encode,
  encode_for_training,
  keep_for_training,
  token_dtype,
)
from transformer.data.text.corpus import FOLDER, Corpus
from transformer.data.vocabulary.vocabularies import RunVocabulary, fingerprints
from transformer.errors import UserError

ABOUT = 'about.json'
_FORMAT = 2
_SAMPLED = 256  # pairs whose text is a part of the key
_SECONDS_BETWEEN_LOGS = 20
_SIDES = ('source', 'target')
_FILES = ('source_tokens.npy', 'source_lengths.npy', 'target_tokens.npy', 'target_lengths.npy')


def load_or_encode(corpus: Corpus, vocabulary: RunVocabulary, max_length: int,
                   **limits) -> EncodedPairs:
  """Returns what `encode_for_training` returns, but encodes a corpus only once.

  If several processes want the same encoding, one makes it and the others wait. No process
  reads the incomplete encoding that an interrupted process leaves. Where nothing can be
  written, the corpus is encoded in memory, with a warning.

  Args:
    corpus: an open corpus; the encoding is kept in its `folder`, if it has one.
    vocabulary: the run's vocabulary.
    max_length: the most tokens that either side may have, end token included.
    **limits: the other limits of `keep_for_training`; one encoding, of every pair, serves all.

  Raises:
    UserError: the encoding on disk is damaged.
  """
  if corpus.folder is None:
    return encode_for_training(corpus, vocabulary, max_length, **limits)
  identity = _identity(corpus, vocabulary)
  key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
  place = corpus.folder / FOLDER / key
  unread = False  # Whether the text could not be read, rather than its encoding written.

  def chunks():
    nonlocal unread
    try:
      yield from encode(corpus, vocabulary)
    except (OSError, UserError):
      unread = True
      raise

  try:
    if not place.exists():
      with _only_one(place):
        if not place.exists():
          logging.info('encoding %s into %s', corpus.name, place)
          write(place, identity, token_dtype(vocabulary), chunks())
  except (OSError, UserError) as error:
    cause = error if isinstance(error, OSError) else error.__cause__
    if unread or not isinstance(cause, OSError):
      raise
    logging.warning('%s is encoded in memory, for this run alone: %s cannot be written (%s)',
                    corpus.name, place, cause.strerror or cause)
    return encode_for_training(corpus, vocabulary, max_length, **limits)
  return keep_for_training(*read(place, identity), max_length, **limits)


def _identity(corpus: Corpus, vocabulary: RunVocabulary) -> dict[str, str | int]:
  """Returns what identifies an encoding.

  The fingerprint of a TFDS set covers its metadata, split and order of languages but not
  its text. A sample of the text is therefore a part of the identity.
  """
  sampled = np.linspace(0, len(corpus) - 1, min(len(corpus), _SAMPLED)).astype(int).tolist()
  text = json.dumps([corpus[i:i + 1][0] for i in sampled])
  return {'format': _FORMAT, 'corpus': corpus.fingerprint, 'pairs': len(corpus),
          'sample': hashlib.sha256(text.encode()).hexdigest(),
          **fingerprints(vocabulary)}


@contextlib.contextmanager
def _only_one(place: Path):
  """Lets one process at a time write `place`."""
  place.parent.mkdir(parents=True, exist_ok=True)
  with place.with_suffix('.lock').open('wb') as lock:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      logging.info('another process is writing %s; waiting for it', place)
      fcntl.flock(lock, fcntl.LOCK_EX)
    for left in place.parent.glob(f'{place.name}.*.tmp'):  # A killed process left it.
      shutil.rmtree(left, ignore_errors=True)
    yield


def write(place: Path, identity: Mapping[str, str | int], dtype: np.dtype,
          chunks: Iterable[tuple[Sentences, Sentences]]):
  """Writes an encoding, which appears under its name once it is complete.

  Args:
    place: the folder, which does not exist yet.
    identity: identifies the encoding; `pairs` is its number of pairs.
    dtype: the type of the tokens.
    chunks: the two sides of all pairs, in order.

  Raises:
    UserError: the folder cannot be written.
  """
  with files.new_folder(place) as folder:
    with contextlib.ExitStack() as stack:
      growing = [stack.enter_context(_growing(folder / name, np.dtype(kind)))
                 for name, kind in zip(_FILES, (dtype, np.int32) * 2, strict=True)]
      pairs, began = 0, time.monotonic()
      told = began
      for source, target in chunks:
        for file, array in zip(growing, (source.tokens, source.lengths, target.tokens,
                                         target.lengths), strict=True):
          file.write(array)
        pairs += len(source)
        if time.monotonic() - told > _SECONDS_BETWEEN_LOGS:
          told = time.monotonic()
          logging.info('encoded %s of %s pairs, %s a second', f'{pairs:,}',
                       f'{identity["pairs"]:,}', f'{pairs / (told - began):,.0f}')
    files.write_sealed(folder / ABOUT, {**identity, 'files': _digests(folder)})


@contextlib.contextmanager
def _growing(path: Path, dtype: np.dtype) -> Iterator[BinaryIO]:
  """Yields a file to append arrays to; it becomes a one-dimensional `.npy` file."""
  with path.open('wb') as file:
    def write_header(length: int):
      np.lib.format.write_array_header_1_0(
          file, {'descr': dtype.str, 'fortran_order': False, 'shape': (length,)})

    write_header(0)
    start = file.tell()
    yield file
    length = (file.tell() - start) // dtype.itemsize
    file.seek(0)
    write_header(length)  # NumPy pads the header, so a longer number fits.


def read(place: Path, identity: Mapping[str, str | int]) -> list[Sentences]:
  """Opens an encoding after checking the digest of every file.

  Args:
    place: the folder that `write` wrote.
    identity: identifies the encoding.

  Returns:
    Sources and targets; their tokens stay on disk.

  Raises:
    UserError: the encoding is not as it was written.
  """
  damage = ''
  try:
    written, digests = files.read_sealed(place / ABOUT, 'what was encoded'), _digests(place)
    wrong = [name for name in digests if digests[name] != written['files'][name]]
    if written != {**identity, 'files': digests}:
      damage = f'{" and ".join(wrong) or ABOUT} is not as it was written'
  except OSError as error:
    damage = f'{error.filename} cannot be read ({error.strerror})'
  except UserError:
    damage = f'{ABOUT} is missing or is not as it was written'
  if damage:
    raise UserError(f'the encoded corpus {place} is damaged: {damage}; remove that folder, and it '
                    'is made again')
  tokens = [np.load(place / f'{side}_tokens.npy', mmap_mode='r') for side in _SIDES]
  lengths = [np.load(place / f'{side}_lengths.npy') for side in _SIDES]
  return list(map(Sentences.end_to_end, map(np.asarray, tokens), lengths))


def _digests(folder: Path) -> dict[str, dict[str, int | str]]:
  """Returns the size and SHA-256 of each file of an encoding, by name."""
  def describe(name):
    with (folder / name).open('rb') as file:
      digest = hashlib.file_digest(file, 'sha256').hexdigest()
      return {'bytes': file.tell(), 'sha256': digest}

  with ThreadPoolExecutor() as pool:
    return dict(zip(_FILES, pool.map(describe, _FILES), strict=True))
