"""Encoded corpora on disk: encoded once, then read a sentence at a time.

An encoding is the folder `encoded/KEY/` beside its corpus. The key is a digest of the corpus and
the vocabulary. Files have the tokens of all sentences, end to end, and their lengths, as raw
numbers; `about.json` has digests. Tokens are mapped into memory: the system drops what was read of
them where memory is short.
"""

import contextlib
import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from transformer import files
from transformer.data.encoding import Sentences, encode, encode_in_memory, token_dtype
from transformer.data.text.sources import Corpus
from transformer.data.vocabulary.vocabularies import RunVocabulary, fingerprints
from transformer.errors import UserError

_ABOUT = 'about.json'
_FORMAT = 4
_SAMPLED = 256  # pairs whose text is a part of the key
_NAMES = 'source.tokens', 'source.lengths', 'target.tokens', 'target.lengths'


def load_or_encode(corpus: Corpus, vocabulary: RunVocabulary, keep: bool = True) -> list[Sentences]:
  """Returns what `encode_in_memory` returns, but encodes a corpus with a `folder` only once.

  One process makes the encoding and others wait. A damaged one is made again. Where nothing can be
  written, the corpus is encoded in memory, with a warning. `keep=False` writes nothing.
  """
  if corpus.folder is None:
    return encode_in_memory(corpus, vocabulary)
  identity = _identity(corpus, vocabulary)
  key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
  place = corpus.folder / 'encoded' / key
  sides = read(place, identity)
  if keep and not sides:
    try:
      place.parent.mkdir(parents=True, exist_ok=True)
      with place.with_name(f'{key}.lock').open('wb') as lock:
        logging.info('encoding %s into %s, unless another process does', corpus.name, place)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not read(place, identity):
          write(place, identity, encode(corpus, vocabulary))
      if not (sides := read(place, identity)):
        raise UserError(f'{place} cannot be read')
    except (OSError, UserError) as error:  # A mistake in the text is met again.
      logging.warning('%s is encoded in memory, for this run alone: %s', corpus.name, error)
  return sides or encode_in_memory(corpus, vocabulary)


def _identity(corpus: Corpus, vocabulary: RunVocabulary) -> dict[str, Any]:
  """Returns what identifies an encoding; the text's sample is for TFDS sets of equal metadata."""
  sampled = np.linspace(0, len(corpus) - 1, min(len(corpus), _SAMPLED)).astype(int).tolist()
  sample = json.dumps([corpus[place : place + 1] for place in sampled])
  return {
    'format': _FORMAT,
    'corpus': corpus.fingerprint,
    'sample': hashlib.sha256(sample.encode()).hexdigest(),
    'pairs': len(corpus),
    'tokens': token_dtype(vocabulary).str,
    **fingerprints(vocabulary),
  }


def write(place: Path, identity: Mapping[str, Any], chunks: Iterable[tuple[Sentences, Sentences]]):
  """Writes an encoding from the two sides of all pairs; it gets its name once it is complete."""
  if place.exists():
    logging.warning('the encoded corpus %s is damaged, and is made again', place)
  for left in (place, *place.parent.glob(f'{place.name}.*.tmp')):  # A killed process left these.
    shutil.rmtree(left, ignore_errors=True)
  with files.new_folder(place) as folder:
    pairs = 0
    with contextlib.ExitStack() as stack:
      growing = [stack.enter_context((folder / name).open('wb')) for name in _NAMES]
      for source, target in chunks:
        for file, array in zip(
          growing, (source.tokens, source.lengths, target.tokens, target.lengths), strict=True
        ):
          array.tofile(file)
        pairs += len(source)
        logging.log_every_n_seconds(
          logging.INFO, 'encoded %d of %d pairs', 20, pairs, identity['pairs']
        )
    files.write_sealed(folder / _ABOUT, _about(folder, identity))


def read(place: Path, identity: Mapping[str, Any]) -> list[Sentences] | None:
  """Returns the two sides of an encoding, whose tokens stay on disk; None if it is not whole."""
  try:
    if files.read_sealed(place / _ABOUT, 'what was encoded') != _about(place, identity):
      return None
  except (OSError, UserError):
    return None
  return [
    Sentences.end_to_end(
      np.asarray(np.memmap(place / f'{side}.tokens', identity['tokens'], 'r')),
      np.fromfile(place / f'{side}.lengths', np.int32),
    )
    for side in ('source', 'target')
  ]


def _about(folder: Path, identity: Mapping[str, Any]) -> dict[str, Any]:
  digests = {}
  for name in _NAMES:
    with (folder / name).open('rb') as file:
      digests[name] = hashlib.file_digest(file, 'sha256').hexdigest()
  return {**identity, 'files': digests}
