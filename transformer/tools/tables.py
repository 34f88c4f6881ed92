"""Tables of sentence pairs, one file a split, for `data.source`: TSV and JSON lines.

  --config.data.source=transformer.tools.tables:Tsv          # {dir}/{split}.tsv
  --config.data.source=transformer.tools.tables:JsonLines    # {dir}/{split}.jsonl

The two sides of a table are kept in temporary files. A run trains on a table as it does on two text
files of the same lines; their fingerprints are equal.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence

from transformer.data.text.text_files import TextCorpus, TextFile, reopened
from transformer.errors import UserError, shown

_CHUNK = 20_000  # lines read together


class Table(TextCorpus):
  """A pair for each line that is not blank; a subclass has `ending`, that of files, and `pair`.

  `pair` returns the source and the target of a line, or None for one that holds no pair. It raises
  a ValueError that says what was wanted and what came.
  """

  def sides(self, *languages: str) -> list[TextFile]:
    """Reads the whole table once."""
    table, broken = TextFile(f'{self.name}{self.ending}'), 0
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as target:
      for number, line in _numbered(table):
        try:
          pair = self.pair(line, languages)
          for file, text in zip((source, target) if pair else (), pair or (), strict=True):
            if '\n' in text:
              broken += 1
              text = text.strip('\r\n').replace('\r\n', ' ').replace('\n', ' ')
            file.write(text.encode() + b'\n')
        except ValueError as error:
          raise UserError(f'{table.name}, line {number}: {error}; it is {shown(line)}') from error
      sides = [TextFile(table.name, reopened(file)) for file in (source, target)]
    sides[0].notes, sides[1].notes = table.notes, ()
    if broken:
      sides[0].notes += (f'{table.name}: {broken} texts have line feeds, which become spaces',)
    return sides


class Tsv(Table):
  """Columns with tabs between them, without quotes: those that a header names, or `columns`.

  A first line with the names of both languages, such as `en` and `de`, is a header.
  """

  ending = '.tsv'
  columns = 0, 1
  _width = 0

  def pair(self, line: str, languages: Sequence[str]) -> list[str] | None:
    cells = line.split('\t')
    if not self._width:
      self._width = max(len(cells), max(self.columns) + 1)
      if set(languages) <= set(cells):
        self.columns = [cells.index(language) for language in languages]
        return None
    if len(cells) != self._width:
      raise ValueError(f'wanted {self._width} columns with tabs between them, as in all lines; got '
                       f'{len(cells)}')
    return [cells[column] for column in self.columns]


class JsonLines(Table):
  """Objects with a text for each language, or with such an object as `translation`."""

  ending = '.jsonl'

  def pair(self, line: str, languages: Sequence[str]) -> list[str]:
    try:
      texts, got = json.loads(line), 'no object'
    except (ValueError, RecursionError) as error:
      texts, got = None, f'no JSON: {error}'
    if isinstance(texts, dict):
      nested = texts.get('translation')
      texts = nested if isinstance(nested, dict) else texts
      pair = [texts.get(language) for language in languages]
      if all(isinstance(text, str) for text in pair):
        return pair
      names = [name for name, text in texts.items() if isinstance(text, str)]
      got = f'texts named {", ".join(names)}' if names else 'no texts'
    raise ValueError(f'wanted an object with the texts {" and ".join(languages)}, or with these in '
                     f'"translation"; got {got}')


def _numbered(table: TextFile) -> Iterator[tuple[int, str]]:
  """Yields the lines that are not blank, with their numbers from 1."""
  for start in range(0, len(table), _CHUNK):
    lines = table.read(start, min(start + _CHUNK, len(table)))
    yield from ((number, line) for number, line in enumerate(lines, start + 1)
                if line.strip(' \r'))
