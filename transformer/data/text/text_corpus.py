"""Sentence pairs from two line-aligned text files."""

import hashlib
import os
from pathlib import Path

from transformer.data.config import DataConfig
from transformer.data.text.corpus import check_slice
from transformer.data.text.text_files import TextFile
from transformer.errors import UserError


class TextCorpus:
  """A `Corpus` of two line-aligned UTF-8 files, which must not change.

  Attributes:
    lines: the numbers of lines of the two files.
  """

  gold = None

  def __init__(self, config: DataConfig, split: str, *, aligned: bool = True):
    """Opens `{dir}/{split}.{language}`.

    Args:
      config: the folder of the files, and both languages.
      split: the beginning of their names.
      aligned: refuses files that are empty or differ in their numbers of lines. If False,
        the corpus ends with the shorter file.

    Raises:
      UserError: a file is missing or not UTF-8, or `aligned` refuses the files.
    """
    self.name = str(Path(config.dir) / split)
    self.folder = Path(os.path.expanduser(self.name)).parent
    self._source, self._target = (
        TextFile(f'{self.name}.{language}')
        for language in (config.source_language, config.target_language))
    self.lines = len(self._source), len(self._target)
    self.notes = self._source.notes + self._target.notes
    if aligned and len(self._source) != len(self._target):
      raise UserError('; '.join((
          f'source and target must have the same number of lines; {self._source.name} has '
          f'{len(self._source)} lines, {self._target.name} has {len(self._target)}', *self.notes)))
    if aligned and not len(self._source):
      raise UserError(f'a corpus must hold at least one pair; {self._source.name} and '
                      f'{self._target.name} are empty')
    digests = (self._source.fingerprint + self._target.fingerprint).encode()
    self.fingerprint = hashlib.sha256(digests).hexdigest()

  def __len__(self) -> int:
    return min(self.lines)

  def __getitem__(self, pairs: slice) -> list[tuple[str, str]]:
    start, stop = check_slice(pairs, len(self))
    return list(zip(self._source.read(start, stop), self._target.read(start, stop), strict=True))
