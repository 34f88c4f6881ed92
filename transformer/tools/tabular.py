"""Tables of sentence pairs, one file per split, for `data.source`: TSV and JSON Lines.

  --config.data.source=transformer.tools.tabular:Tsv          # {dir}/{split}.tsv
  --config.data.source=transformer.tools.tabular:JsonLines    # {dir}/{split}.jsonl

Source and target of a table are stored in temporary files. Training on a table equals training on
two text files with the same lines; the fingerprints are equal.
"""

import json
import re
import tempfile
from collections.abc import Iterator, Sequence

from absl import logging

from transformer.data.text.text_files import TextCorpus, TextFile, is_blank, reopened
from transformer.errors import UserError, short_repr

_CHUNK = 20_000  # lines per chunk
# Language codes, and other words in column names.
_NAMES = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de
dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id
ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu
lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu
rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr
ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu ara ces deu eng est fin fra fre ger hun ita
jpn kor nld pol por rus spa swe tur ukr zho anglais arabic chinese czech deutsch dutch englisch
english français französisch french german hyp hypothesis id index italian japanese korean lang
language line original polish portuguese ref reference russian score segment sentence source
spanish src target text tgt translation trg turkish ukrainian"""


class OneFileCorpus(TextCorpus):
  """A corpus with one pair per line; a subclass defines `ending`, the file extension, and `pair`.

  `pair` returns the source and target of a line, or None if the line holds no pair. It raises a
  ValueError that states the expected and the actual content.
  """

  def sides(self, *languages: str) -> list[TextFile]:
    """Reads the whole table once."""
    table = TextFile(f'{self.name}{self.ending}')
    num_broken = 0
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as target:
      for line_number, line in _numbered(table):
        try:
          pair = self.pair(line, languages)
          if pair:
            num_broken += _write(source, pair[0]) + _write(target, pair[1])
        except ValueError as error:
          raise UserError(
            f'{table.name}, line {line_number}: {error}; it is {short_repr(line)}'
          ) from error
      sides = [
        TextFile(table.name, reopened(source)),
        TextFile(table.name, reopened(target)),
      ]
    sides[0].notes = table.notes
    sides[1].notes = ()
    if num_broken:
      sides[0].notes += (
        f'{table.name}: {num_broken} texts have line feeds, which become spaces',
      )
    return sides


def _write(file, text: str) -> bool:
  """Writes a text as one line; returns whether it contained line feeds."""
  line = text
  if '\n' in text:
    line = text.strip('\r\n').replace('\r\n', ' ').replace('\n', ' ')
  file.write(line.encode() + b'\n')
  return '\n' in text


class Tsv(OneFileCorpus):
  """Tab-separated columns without quoting; a header or `columns` selects source and target.

  A first line that names both languages, such as `en` and `de`, is a header; case, and quotes or
  spaces around the names, are ignored. Another first line that looks like a header is a
  `UserError`.
  """

  ending = '.tsv'
  columns = (0, 1)
  _width = 0

  def pair(self, line: str, languages: Sequence[str]) -> list[str] | None:
    cells = line.split('\t')
    if len(cells) == 1 and is_blank(line):
      return None
    if not self._width:
      self._width = max(len(cells), max(self.columns) + 1)
      has_header = self._read_header(cells, languages)
      source, target = self.columns
      logging.info(
        '%s%s: %s is column %d and %s column %d, %s',
        self.name,
        self.ending,
        languages[0],
        source + 1,
        languages[1],
        target + 1,
        'by its header' if has_header else 'without a header',
      )
      if has_header:
        return None
    if len(cells) != self._width:
      raise ValueError(
        f'expected {self._width} tab-separated columns, as in all lines; got {len(cells)}'
      )
    return [cells[column] for column in self.columns]

  def _read_header(self, cells: Sequence[str], languages: Sequence[str]) -> bool:
    """Returns whether the first line is a header; if so, sets `columns` to the two languages."""
    names = list(map(_name, cells))
    expected = list(map(_name, languages))
    if all(names.count(language) == 1 for language in expected):
      self.columns = tuple(map(names.index, expected))
      return True
    language_names = set(filter(_is_of_column, names))
    if set(names) & set(expected) or len(language_names) > 1:
      header = '<TAB>'.join(languages)
      raise ValueError(
        f'the first line looks like a header, but {" and ".join(languages)} must each appear '
        f'exactly once; found {", ".join(cells):.100}; rename the columns, or, if this line is '
        f'data, add the header line {header} above it'
      )
    return False


class JsonLines(OneFileCorpus):
  """Objects with one text per language, or with such an object as `translation`.

  Names of languages are case-insensitive.
  """

  ending = '.jsonl'

  def pair(self, line: str, languages: Sequence[str]) -> list[str] | None:
    if is_blank(line):
      return None
    texts = None
    content = 'no object'
    try:
      texts = json.loads(line)
    except (ValueError, RecursionError) as error:
      content = f'no JSON: {error}'
    if isinstance(texts, dict):
      nested = texts.get('translation')
      if isinstance(nested, dict):
        texts = nested
      by_name = {_name(name): text for name, text in texts.items()}
      pair = [
        texts.get(language, by_name.get(_name(language))) for language in languages
      ]
      if all(isinstance(text, str) for text in pair):
        return pair
      names = [name for name, text in texts.items() if isinstance(text, str)]
      content = f'texts named {", ".join(names)}' if names else 'no texts'
    raise ValueError(
      f'expected an object with the texts {" and ".join(languages)}, or with these in '
      f'"translation"; got {content}'
    )


def _name(cell: str) -> str:
  """Returns the name of a column in lower case, without surrounding characters."""
  return cell.strip('#"\' \r\ufeff\u00a0').replace('_', '-').casefold()


def _is_of_column(name: str) -> bool:
  """Returns whether a name consists of `_NAMES`, as in `source-en`, or is a code and region."""
  without_region = re.sub(r'(?<=..)-[a-z]{2,4}$', '', name)
  parts = set(re.split(r'[-.\d]+', without_region)) - {''}
  return bool(parts) and parts <= set(_NAMES.split())


def _numbered(table: TextFile) -> Iterator[tuple[int, str]]:
  """Yields the lines with their line numbers, from 1."""
  for start in range(0, len(table), _CHUNK):
    lines = table.read(start, min(start + _CHUNK, len(table)))
    yield from enumerate(lines, start + 1)
