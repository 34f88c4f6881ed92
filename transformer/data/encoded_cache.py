"""Encoded corpora on disk: encoded once, then read a sentence at a time.

An encoding lies in `encoded/KEY/`, beside its corpus: the tokens and the
lengths of each side as `.npy` files, and `about.json`, which says what was
encoded with what, and how large each file is and which checksum it has. The key
is of the corpus and the vocabulary, so a change to either makes another folder;
whichever is no longer wanted may be deleted at any time.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from absl import logging

from transformer.data.array_files import StoredSentences, TokenFile, appending
from transformer.data.encoding import (
  EncodedPairs,
  Sentences,
  encode,
  encode_for_training,
  keep_for_training,
  token_dtype,
)
from transformer.data.sources import FOLDER, Corpus
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.files import flush, flush_folder

ABOUT = 'about.json'
_FORMAT = 1
_BLOCK = 1 << 22  # bytes read at a time
_SAMPLED = 256  # pairs whose text is a part of the key
_SECONDS_BETWEEN_LOGS = 20
_SIDES = ('source', 'target')
_FILES = tuple(f'{side}_{what}.npy' for side in _SIDES for what in ('tokens', 'lengths'))


def load_or_encode(corpus: Corpus, vocabulary: Vocabulary, max_length: int,
                   **limits) -> EncodedPairs:
  """Does what `encode_for_training` does, but encodes a corpus only once.

  Of several processes that want the same encoding, one makes it, and the others
  wait. What is interrupted is as if it had never begun. Where nothing can be
  written, the corpus is encoded in memory, and that is logged.

  Args:
    corpus: opened; the encoding is kept in its `folder`.
    vocabulary: the run's.
    max_length: the most tokens that either side may have, end token included.
    **limits: the others of `keep_for_training`. An encoding holds every pair, so that
      one serves all limits.

  Returns:
    The pairs that training can use; their tokens stay on disk.

  Raises:
    UserError: the encoding on disk is damaged.
  """
  identity = _identity(corpus, vocabulary)
  key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
  place = corpus.folder / FOLDER / key
  try:
    if not place.exists():
      with _only_one(place):
        if not place.exists():
          logging.info('encoding %s into %s', corpus.name, place)
          write(place, identity, token_dtype(vocabulary), encode(corpus, vocabulary))
  except OSError as error:
    logging.warning('%s is encoded in memory, for this run alone: %s cannot be written (%s)',
                    corpus.name, place, error.strerror or error)
    return encode_for_training(corpus, vocabulary, max_length, **limits)
  return keep_for_training(*read(place, identity), max_length, **limits)


def _identity(corpus: Corpus, vocabulary: Vocabulary) -> dict[str, str | int]:
  """What an encoding is of.

  A TFDS fingerprint covers the set's metadata, split and order of languages, and
  not its text; hence the sample.
  """
  sampled = np.linspace(0, len(corpus) - 1, min(len(corpus), _SAMPLED)).astype(int).tolist()
  text = json.dumps([corpus[i] for i in sampled])
  return {'format': _FORMAT, 'corpus': corpus.fingerprint, 'pairs': len(corpus),
          'sample': hashlib.sha256(text.encode()).hexdigest(),
          'vocabulary': vocabulary.fingerprint}


@contextlib.contextmanager
def _only_one(place: Path):
  """Lets one process at a time, of all that want `place`, write it."""
  place.parent.mkdir(parents=True, exist_ok=True)
  with place.with_suffix('.lock').open('wb') as lock:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      logging.info('another process is writing %s; waiting for it', place)
      fcntl.flock(lock, fcntl.LOCK_EX)
    yield


def write(place: Path, identity: Mapping[str, str | int], dtype: np.dtype,
          chunks: Iterable[tuple[Sentences, Sentences]]):
  """Writes an encoding into a folder of another name, and moves that into place.

  Args:
    place: the folder; it is not there yet.
    identity: what the encoding is of; `pairs` is how many there are.
    dtype: of tokens.
    chunks: the two sides of all pairs, in order.
  """
  unfinished = place.with_suffix('.unfinished')
  shutil.rmtree(unfinished, ignore_errors=True)  # Of a process that was killed.
  unfinished.mkdir()
  try:
    with contextlib.ExitStack() as files:
      tokens, lengths = ([files.enter_context(appending(unfinished / f'{side}_{what}.npy', each))
                          for side in _SIDES]
                         for what, each in (('tokens', dtype), ('lengths', np.dtype(np.int32))))
      pairs, began = 0, time.monotonic()
      told = began
      for chunk in chunks:
        for side, sentences in enumerate(chunk):
          tokens[side](sentences.tokens)
          lengths[side](sentences.lengths)
        pairs += len(chunk[0])
        if time.monotonic() - told > _SECONDS_BETWEEN_LOGS:
          told = time.monotonic()
          logging.info('encoded %s of %s pairs, %s a second', f'{pairs:,}',
                       f'{identity["pairs"]:,}', f'{pairs / (told - began):,.0f}')
    files = {name: _describe(unfinished / name) for name in _FILES}
    with (unfinished / ABOUT).open('w', encoding='utf-8') as file:
      json.dump({**identity, 'files': files}, file, indent=2)
      flush(file)
    flush_folder(unfinished)
    os.replace(unfinished, place)
    flush_folder(place.parent)
  except BaseException:
    shutil.rmtree(unfinished, ignore_errors=True)
    raise


def read(place: Path, identity: Mapping[str, str | int]) -> list[Sentences]:
  """Opens an encoding, once all of it has been seen to be whole.

  Args:
    place: the folder that `write` wrote.
    identity: what the encoding should be of.

  Returns:
    Sources and targets; their tokens stay on disk.

  Raises:
    UserError: something of it is not as it was written.
  """
  try:
    damage = _damage(place, identity)
  except OSError as error:
    damage = f'{error.filename} cannot be read ({error.strerror})'
  except (ValueError, KeyError, TypeError, RecursionError) as error:
    damage = f'{ABOUT} cannot be understood ({error!r})'
  if damage:
    raise UserError(f'the encoded corpus {place} is damaged: {damage}; remove that folder, and it '
                    'is made again')
  return [StoredSentences.end_to_end(
      TokenFile(place / f'{side}_tokens.npy'),
      np.load(place / f'{side}_lengths.npy', allow_pickle=False)) for side in _SIDES]


def _damage(place: Path, identity) -> str | None:
  """What about an encoding is not as it was written."""
  about = json.loads((place / ABOUT).read_text(encoding='utf-8'))
  for name, value in identity.items():
    if about[name] != value:
      return f'{ABOUT} should say {name}={value}; it says {about[name]}'
  with ThreadPoolExecutor() as pool:
    found = pool.map(lambda name: _describe(place / name), _FILES)
    for name, each in zip(_FILES, found, strict=True):
      if each != about['files'][name]:
        return f'{name} should have {about["files"][name]}; it has {each}'
  return None


def _describe(path: Path) -> dict[str, int]:
  """Size of a file, and its CRC-32, which any one wrong byte changes and a large file allows."""
  checksum = 0
  with path.open('rb') as file:
    while block := file.read(_BLOCK):
      checksum = zlib.crc32(block, checksum)
    return {'bytes': file.tell(), 'crc32': checksum}
