"""Lines that show nothing, and one line in place of several."""

import re
from collections.abc import Sequence

from transformer.errors import UserError

# White space, control characters, and what Unicode calls ignorable by default, such as a zero-width
# space or a mark of byte order.
_INVISIBLE = re.compile(
    r'[\s\0-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f'
    r'\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3'
    r'\U0001d173-\U0001d17a\U000e0000-\U000e0fff]*')


def is_blank(line: str) -> bool:
  """Returns whether a line has nothing to read: no character, or invisible ones alone."""
  return _INVISIBLE.fullmatch(line) is not None


def check_several(lines: Sequence[str]):
  """Refuses one line in place of several, since its letters would count as lines.

  Raises:
    UserError: there is one.
  """
  if isinstance(lines, str):
    raise UserError(f'several lines are needed, such as a list; got one string, {lines[:40]!r}; '
                    f'put it into brackets')
