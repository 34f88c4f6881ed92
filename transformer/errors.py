"""Exceptions whose messages are written for users, and what other exceptions say."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

# What XLA, CUDA, C++ and the operating system say, in small letters.
_OUT_OF_MEMORY = (
  'resource_exhausted',
  'out of memory',
  'out_of_memory',
  'bad_alloc',
  'cannot allocate memory',
)


class UserError(ValueError):
  """A mistake that the user can correct: in a config, a file or a directory.

  The message is a single line that says what was wanted, what came, and what to do. The commands
  print it and exit with status 1. Every other exception is a bug and keeps its traceback.
  """

  def __init__(self, message: str = ''):
    """Takes a message; of a path or a text that is too long to read, both ends are kept."""
    super().__init__(readable(message))


class Preempted(KeyboardInterrupt):
  """Raised when a signal has asked the run to stop; libraries do not catch it, as with Ctrl-C.

  The message is a single line that says how far the run is. The commands print it and
  exit with a status that tells a scheduler to start them again.
  """


def shown(value: Any) -> str:
  """Returns any value, such as what a user gave, as one line of at most 100 characters."""
  return _shortened(' '.join(repr(value).splitlines()), 100)


def readable(message: str) -> str:
  """Returns a message in one line of at most 1,000 characters."""
  # Names of files and lines of text may hold line feeds, controls or lone surrogates.
  line = ''.join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in message)
  return _shortened(line, 1000)


def _shortened(text: str, most: int) -> str:
  """Returns a text of at most so many characters, with both ends of a longer one."""
  half = most // 2
  return text if len(text) <= most else f'{text[:half]}…{text[len(text) - half + 1 :]}'


def type_and_message(error: BaseException) -> str:
  """Returns the type and the message of an error in one line of at most 600 characters."""
  return _shortened(' '.join(f'{type(error).__name__}: {error}'.split()), 600)


@contextlib.contextmanager
def optional(missing: str, warn: Callable[[str], None]) -> Iterator[None]:
  """Turns an error of optional work into one warning, so that the main work goes on.

  `missing` says what there is not, such as `no translations in eval/`.
  """
  try:
    yield
  except (Exception, SystemExit) as error:
    reason = error if isinstance(error, UserError) else type_and_message(error)
    warn(f'{missing}: {reason}')


def is_out_of_memory(error: BaseException) -> bool:
  """Returns whether an error, or one that caused it, says that there is too little memory."""
  text = str(error).lower()
  return (
    isinstance(error, MemoryError)
    or any(words in text for words in _OUT_OF_MEMORY)
    or (error.__cause__ is not None and is_out_of_memory(error.__cause__))
  )
