"""Says what a file is that should be UTF-8 text, and what lies where a file is missing."""

import difflib
import shlex
from pathlib import Path

from transformer.errors import UserError

HEAD = 4096  # The bytes of a file that tell what it is.
_FEWEST = 16  # A shorter line with zeros may be anything.
_NAMES_SHOWN = 5
# Endings of compressed files, their first bytes, and the command that prints their content.
_COMPRESSED = (('.gz', b'\x1f\x8b', 'gzip -dc'), ('.zst', b'\x28\xb5\x2f\xfd', 'zstd -dc'),
               ('.xz', b'\xfd7zXZ\0', 'xz -dc'), ('.bz2', b'BZh', 'bzip2 -dc'),
               ('.zip', b'PK\x03\x04', 'unzip -p'))
_MARKS = ((b'\xff\xfe\0\0', 'UTF-32'), (b'\xff\xfe', 'UTF-16'), (b'\xfe\xff', 'UTF-16'))


def not_utf8(name: str, line: int, byte: int, head: bytes) -> str:
  """Describes a file that is not UTF-8.

  Args:
    name: the file's name.
    line: the number of the first line that is not UTF-8.
    byte: the byte that is not UTF-8.
    head: the first bytes of the file.
  """
  return f'{name} must be UTF-8; line {line} is not, at the byte 0x{byte:02x}; {_advice(head)}'


def refuse_utf16(name: str, head: bytes):
  """Refuses UTF-16 whose bytes are valid UTF-8: ASCII with a zero beside each character.

  Raises:
    UserError: says how the file is converted.
  """
  if _utf16_without_mark(head) and 4 * head.count(0) > len(head) >= _FEWEST:
    raise UserError(f'{name} must be UTF-8; {_advice(head)}')


def what_is_there(path: Path) -> str:
  """Describes the content of the folder of a missing file: it compressed, or similar names."""
  folder = path.parent
  if not folder.is_dir():
    return f'there is no folder {folder}'
  try:
    names = [entry.name for entry in folder.iterdir() if entry.is_file()]
  except OSError as error:
    return f'{folder} cannot be listed: {error.strerror}'
  if not names:
    return f'there are no files in {folder}'
  for ending, _, command in _COMPRESSED:
    if path.name + ending in names:
      packed, name = f'{path}{ending}', shlex.quote(str(path))
      return f'{packed} is there; unpack it: {command} {shlex.quote(packed)} > {name}'
  nearest = difflib.get_close_matches(path.name, sorted(names), n=_NAMES_SHOWN, cutoff=0)
  others = len(names) - len(nearest)
  return f'{folder} holds {", ".join(nearest)}' + (f' and {others} others' if others else '')


def _advice(head: bytes) -> str:
  for ending, mark, command in _COMPRESSED:
    if head.startswith(mark):
      return f'it is compressed, as {ending} files are; unpack it with {command}'
  for mark, encoding in _MARKS:
    if head.startswith(mark):
      return f'it is {encoding}; convert it with iconv -f {encoding} -t UTF-8'
  if encoding := _utf16_without_mark(head):
    return f'it looks like {encoding}; convert it with iconv -f {encoding} -t UTF-8'
  return 'convert the file'


def _utf16_without_mark(head: bytes) -> str:
  """Returns the encoding if only every second byte is ever zero, as in UTF-16 with ASCII in it."""
  first, second = 0 in head[::2], 0 in head[1::2]
  if first == second:
    return ''
  return 'UTF-16BE' if first else 'UTF-16LE'
