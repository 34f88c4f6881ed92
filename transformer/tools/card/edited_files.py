"""Files that a tool writes and a user may edit: an edited file is never replaced unasked."""

import hashlib
import re
from pathlib import Path

from transformer.system import outputs

_END = re.compile(
  rb'<!-- Written by transformer\.tools\.card, which keeps an edited file; SHA-256 of all above: '
  rb'([0-9a-f]{64}) -->\n\Z'
)


def marked(text: str) -> bytes:
  """Returns a text in UTF-8 with a comment at its end that has its digest."""
  content = text.encode('utf-8', 'backslashreplace')
  comment = (
    f'<!-- Written by transformer.tools.card, which keeps an edited file; SHA-256 of all above: '
    f'{hashlib.sha256(content).hexdigest()} -->\n'
  )
  return content + comment.encode()


def is_edited(path: Path) -> bool:
  """Returns whether a file exists and differs from what `write` wrote there."""
  if not path.exists():
    return False
  content = path.read_bytes()
  end = _END.search(content)
  if end is None:
    return True
  digest = hashlib.sha256(content[: end.start()]).hexdigest()
  return digest.encode() != end[1]


def write(path: Path, text: str, overwrite: bool) -> bool:
  """Writes a text with its digest; returns False if the file was edited, and so is kept."""
  if is_edited(path) and not overwrite:
    return False
  outputs.write(path, marked(text))
  return True
