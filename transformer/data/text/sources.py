"""Opens sentence pairs with the class that `data.source` names: text files, TFDS or custom."""

import itertools
import os
import pkgutil
from pathlib import Path

from absl import logging

from transformer import plugins
from transformer.data.config import DataConfig
from transformer.errors import UserError, short_repr

# Importing TFDS takes a second, so each class is imported only when it is used.
_CLASSES = {
  'text': 'transformer.data.text.text_files:TextCorpus',
  'tfds': 'transformer.data.text.tfds_corpus:TfdsCorpus',
}


class Corpus:
  """Sentence pairs of any source, by index; reading is thread-safe.

  Logs the notes of the source; docs/plugins.md describes the attributes.
  """

  def __init__(self, config: DataConfig, split: str):
    source = config.source
    self._what = f'the source {source}, split {split!r},'
    with plugins.as_user_error(f'{self._what} cannot be opened'):
      if source in _CLASSES:
        corpus_class = pkgutil.resolve_name(_CLASSES[source])
      else:
        corpus_class = plugins.load(source, 'source')
      pairs = corpus_class(config, split)
      self.fingerprint = str(pairs.fingerprint)
      self._length = len(pairs)
    if not self._length:
      raise UserError(f'a corpus must hold at least one pair; {self._what} is empty')
    self._pairs = pairs
    self.name = getattr(pairs, 'name', f'{source}:{split}')
    self.notes = tuple(getattr(pairs, 'notes', ()))
    folder = getattr(pairs, 'folder', None)
    self.folder = Path(folder) if folder else None
    self.gold = getattr(pairs, 'gold', None)
    for note in self.notes:
      logging.warning(note)
    # Fails here, before training a vocabulary, if the pairs are not text.
    self[:1]

  def __len__(self) -> int:
    return self._length

  def __getitem__(self, pairs: slice) -> list[tuple]:
    """Returns a slice of pairs, each (source sentence, target sentence)."""
    expected = len(range(*pairs.indices(len(self))))
    with plugins.as_user_error(f'{self._what} cannot be read'):
      sentences = [(source, target) for source, target in self._pairs[pairs]]
    sides = itertools.chain(*sentences)
    if len(sentences) != expected or not all(isinstance(side, str) for side in sides):
      raise UserError(
        f'{self._what} must hold a source and a target as text for each of its pairs;'
        f' got {len(sentences)} of {expected} pairs, such as {short_repr(sentences[:1])}'
      )
    return sentences


def open_corpus(
  config: DataConfig, split: str, dir_flag: str = '--config.data.dir'
) -> Corpus:
  """Opens a TFDS split, such as `train[:10%]`, a prefix of text files, or a custom split.

  `dir_flag` is the flag for the data's folder, for error messages.
  """
  try:
    return Corpus(config, split)
  except UserError as error:
    if not config.dir or os.path.isdir(os.path.expanduser(config.dir)):
      raise
    raise UserError(
      f'{error}; if the dataset has moved, pass {dir_flag}=DIR'
    ) from error
