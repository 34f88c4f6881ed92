"""Opens sentence pairs: text files, TensorFlow Datasets, or a source of one's own."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from transformer import own_code
from transformer.data.config import DataConfig
from transformer.data.text.corpus import Corpus
from transformer.data.text.text_corpus import TextCorpus
from transformer.errors import UserError, type_and_message


def open_corpus(config: DataConfig, split: str, *, aligned: bool = True,
                dir_flag: str = '--config.data.dir') -> Corpus:
  """Opens one corpus.

  Args:
    config: names the source, and the place of its corpora.
    split: a TFDS split, such as `train` or `train[:10%]`; the prefix of text files; or a name that
      a source of one's own understands.
    aligned: as in `TextCorpus`; other sources are always aligned.
    dir_flag: the flag that sets the place of the corpora, as error messages name it.

  Raises:
    UserError: the corpus does not exist, cannot be read or is empty.
  """
  try:
    if config.source == 'text':
      return TextCorpus(config, split, aligned=aligned)
    return _class_of(config.source)(config, split)
  except UserError as error:
    if not config.dir or os.path.isdir(os.path.expanduser(config.dir)):
      raise
    raise UserError(f'{error}; if the data lies elsewhere, give {dir_flag}=DIR') from error


def _class_of(source: str) -> Callable[[DataConfig, str], Corpus]:
  """Returns the class of a source; imports nothing that only another source needs."""
  if source == 'tfds':
    from transformer.data.text.tfds_sets import TfdsCorpus
    return TfdsCorpus
  return OwnCorpus


class OwnCorpus:
  """A corpus of a class of one's own; a mistake in that class is a `UserError`."""

  def __init__(self, config: DataConfig, split: str):
    """Opens a split; `transformer.data.text.corpus` says what the class must have.

    Raises:
      UserError: the class raises an error, or lacks something; or the corpus is empty.
    """
    self._what = f'the source {config.source}, split {split!r},'
    try:
      self._pairs = own_code.load(config.source, 'source')(config, split)
      self.fingerprint, length = str(self._pairs.fingerprint), len(self._pairs)
    except UserError:
      raise
    except (Exception, SystemExit) as error:
      raise UserError(f'{self._what} cannot be opened: {type_and_message(error)}') from error
    if not length:
      raise UserError(f'a corpus must hold at least one pair; {self._what} is empty')
    self.name: str = getattr(self._pairs, 'name', f'{config.source}:{split}')
    self.notes: tuple[str, ...] = tuple(getattr(self._pairs, 'notes', ()))
    self.folder: Path | None = getattr(self._pairs, 'folder', None)
    self[:1]  # A class whose pairs are no texts is refused before anything is learned from them.

  @property
  def gold(self) -> Sequence[str] | None:
    return getattr(self._pairs, 'gold', None)

  def __len__(self) -> int:
    return len(self._pairs)

  def __getitem__(self, pairs: slice) -> list[tuple[str, str]]:
    try:
      sentences = [(source, target) for source, target in self._pairs[pairs]]
    except UserError:
      raise
    except (Exception, SystemExit) as error:
      raise UserError(f'{self._what} cannot be read: {type_and_message(error)}') from error
    wanted = len(range(*pairs.indices(len(self))))
    if len(sentences) != wanted:
      raise UserError(f'{self._what} must have as many pairs as its length says; got '
                      f'{len(sentences)} of {wanted}')
    for pair in sentences:
      if not (isinstance(pair[0], str) and isinstance(pair[1], str)):
        raise UserError(f'{self._what} must hold a source and a target as text; got {pair!r:.100}')
    return sentences
