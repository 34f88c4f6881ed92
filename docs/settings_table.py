"""Builds the table of settings in docs/configuration.md from the docstrings of the dataclasses.

python docs/settings_table.py           # fails if the table is stale
python docs/settings_table.py --write   # updates it
"""

import dataclasses
import inspect
import pathlib
import re
import sys
import typing

ROOT = pathlib.Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
  sys.path.append(str(ROOT))

from transformer.config import Config  # noqa: E402 - found by the line above.

PAGE = ROOT / 'docs' / 'configuration.md'
BEGIN, END = '<!-- settings -->\n', '<!-- end of settings -->\n'


def attributes(cls: type) -> dict[str, str]:
  """Returns the meaning of each attribute that the docstring of a class lists."""
  _, _, listed = inspect.getdoc(cls).partition('\nAttributes:\n')
  entries = re.findall(r'^  (\w+): (.*(?:\n    .*)*)', listed, re.MULTILINE)
  return {name: ' '.join(meaning.split()) for name, meaning in entries}


def settings_table() -> str:
  """Returns a Markdown table with each key, its default and its meaning.

  Raises:
    KeyError: a docstring does not list a field.
  """
  lines = ['| key | default | meaning |', '| --- | --- | --- |']
  kinds = typing.get_type_hints(Config)
  for group in dataclasses.fields(Config):
    kind = kinds[group.name]
    if dataclasses.is_dataclass(kind):
      meanings = attributes(kind)
      lines += [
        _row(f'{group.name}.{field.name}', field.default, meanings[field.name])
        for field in dataclasses.fields(kind)
      ]
    else:
      lines.append(_row(group.name, group.default, attributes(Config)[group.name]))
  return ''.join(f'{line}\n' for line in lines)


def updated(page: str) -> str:
  """Returns the page with the current table between its two markers."""
  before, _, rest = page.partition(BEGIN)
  _, _, after = rest.partition(END)
  return f'{before}{BEGIN}{settings_table()}{END}{after}'


def _row(key, default, meaning):
  cells = (f'`{key}`', f'`{default!r}`', meaning.replace('|', r'\|'))
  return f'| {" | ".join(cells)} |'


if __name__ == '__main__':
  old = PAGE.read_text('utf-8')
  new = updated(old)
  if '--write' in sys.argv[1:]:
    PAGE.write_text(new, 'utf-8')
  elif old != new:
    sys.exit(f'{PAGE} is stale: run python docs/settings_table.py --write')
