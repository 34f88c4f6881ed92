"""Exceptions whose messages are written for users, and the messages of other exceptions."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

# Phrases of XLA, CUDA, C++ and the operating system, in lower case.
_OUT_OF_MEMORY = (
  'resource_exhausted',
  'out of memory',
  'out_of_memory',
  'bad_alloc',
  'cannot allocate memory',
)


class UserError(ValueError):
  """An error that the user can fix: in a config, a file or a directory.

  The message is a single line: what was expected, what was found, and the fix. The commands print
  it and exit with status 1. Every other exception is a bug and keeps its traceback.
  """

  def __init__(self, message: str = ''):
    """Takes a message; one that is too long to read is shortened in the middle."""
    super().__init__(one_line(message))


class StoppedBySignal(KeyboardInterrupt):
  """Raised when a signal has asked the run to stop; libraries do not catch it, as with Ctrl-C.

  The message is a single line with the progress of the run. The commands print it and exit with a
  status that asks a scheduler to start them again.
  """


def short_repr(value: Any) -> str:
  """Returns the `repr` of a value, such as user input, in one line of at most 100 characters."""
  return _shortened(' '.join(repr(value).splitlines()), 100)


def one_line(message: str) -> str:
  """Returns a message in one line of at most 1,000 characters."""
  # File names and lines of text may contain line feeds, control characters or lone surrogates.
  line = ''.join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in message)
  return _shortened(line, 1000)


def _shortened(text: str, limit: int) -> str:
  """Returns a text of at most `limit` characters; of a longer text, keeps both ends."""
  half = limit // 2
  return text if len(text) <= limit else f'{text[:half]}…{text[len(text) - half + 1 :]}'


def type_and_message(error: BaseException) -> str:
  """Returns the type and the message of an error in one line of at most 600 characters."""
  return _shortened(' '.join(f'{type(error).__name__}: {error}'.split()), 600)


@contextlib.contextmanager
def warn_on_error(consequence: str, warn: Callable[[str], None]) -> Iterator[None]:
  """Turns an error of optional work into one warning, so that the main work continues.

  `consequence`: prefix of the warning, such as `no translations in eval/`.
  """
  try:
    yield
  except (Exception, SystemExit) as error:
    reason = error if isinstance(error, UserError) else type_and_message(error)
    warn(f'{consequence}: {reason}')


def is_out_of_memory(error: BaseException) -> bool:
  """Returns whether an error, or its cause, reports insufficient memory."""
  text = str(error).lower()
  return (
    isinstance(error, MemoryError)
    or any(words in text for words in _OUT_OF_MEMORY)
    or (error.__cause__ is not None and is_out_of_memory(error.__cause__))
  )
