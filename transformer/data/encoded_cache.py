"""A cache of encoded corpora on disk: encoded once, then read a sentence at a time.

An encoding is the folder `encoded/KEY/` next to its corpus. KEY is a digest of the corpus and the
vocabulary. Its files hold the concatenated tokens of all sentences, and the lengths of the
sentences, as raw integers; `about.json` holds the digests of these files. Tokens are
memory-mapped, so the system can evict them when memory is short.
"""

import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from absl import logging

from transformer import files
from transformer.data.encoding import Sentences, encode, encode_in_memory, token_dtype
from transformer.data.text.sources import Corpus
from transformer.data.vocabulary.vocabularies import RunVocabulary, fingerprints
from transformer.errors import UserError

_METADATA = 'about.json'
_FORMAT = 5
_NAMES = ('source.tokens', 'source.lengths', 'target.tokens', 'target.lengths')


def load_or_encode(
  corpus: Corpus, vocabulary: RunVocabulary, write_cache: bool = True
) -> list[Sentences]:
  """Returns the result of `encode_in_memory`, cached on disk if the corpus has a `folder`.

  One process writes the encoding while others wait. A corrupted encoding is rebuilt. If writing
  fails, encodes the corpus in memory and logs a warning. `write_cache=False` writes nothing.
  """
  if corpus.folder is None:
    return encode_in_memory(corpus, vocabulary)
  dtype = token_dtype(vocabulary)
  identity = [_FORMAT, corpus.fingerprint, dtype.str, fingerprints(vocabulary)]
  key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
  place = corpus.folder / 'encoded' / key
  sides = read_encoding(place, dtype)
  if write_cache and not sides:
    try:
      place.parent.mkdir(parents=True, exist_ok=True)
      with place.with_name(f'{key}.lock').open('wb') as lock:
        logging.info(
          'encoding %s into %s, unless another process does', corpus.name, place
        )
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not read_encoding(place, dtype):
          write_encoding(place, encode(corpus, vocabulary), len(corpus))
      sides = read_encoding(place, dtype)
    except (OSError, UserError) as error:  # Errors in the text are raised again below.
      logging.warning(
        '%s is encoded in memory, only for this run: %s', corpus.name, error
      )
  return sides or encode_in_memory(corpus, vocabulary)


def write_encoding(place: Path, chunks: Iterable[tuple], pairs: int):
  """Writes an encoding from chunks (source, target) of all pairs; renamed once complete."""
  if place.exists():
    logging.warning('the encoded corpus %s is damaged; encoding it again', place)
  # A killed process may have left temporary files.
  for leftover in (place, *place.parent.glob(f'{place.name}.*.tmp')):
    shutil.rmtree(leftover, ignore_errors=True)
  with files.new_folder(place) as folder:
    done = 0
    for source, target in chunks:
      arrays = (source.tokens, source.lengths, target.tokens, target.lengths)
      for name, array in zip(_NAMES, arrays, strict=True):
        with (folder / name).open('ab') as file:
          array.tofile(file)
      done += len(source)
      logging.log_every_n_seconds(
        logging.INFO, 'encoded %d of %d pairs', 20, done, pairs
      )
    files.write_sealed(folder / _METADATA, _digests(folder))


def read_encoding(place: Path, dtype: np.dtype) -> list[Sentences] | None:
  """Returns both sides of an encoding, tokens memory-mapped; None if missing or corrupted."""
  try:
    if files.read_sealed(place / _METADATA, 'digests') != _digests(place):
      return None
  except (OSError, UserError):
    return None
  sides = []
  for side in ('source', 'target'):
    tokens = np.asarray(np.memmap(place / f'{side}.tokens', dtype, 'r'))
    lengths = np.fromfile(place / f'{side}.lengths', np.int32)
    sides.append(Sentences.from_lengths(tokens, lengths))
  return sides


def _digests(folder: Path) -> dict[str, str]:
  return {name: files.sha256_of(folder / name) for name in _NAMES}
