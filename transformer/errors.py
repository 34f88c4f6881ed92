"""Exceptions whose messages are written for users, and what other exceptions say."""

import contextlib
from collections.abc import Callable, Iterator

# What XLA, CUDA, C++ and the operating system say, in small letters.
_OUT_OF_MEMORY = ('resource_exhausted', 'out of memory', 'out_of_memory', 'bad_alloc',
                  'cannot allocate memory')
_LONGEST = 300  # XLA's messages may have thousands of characters.


class UserError(ValueError):
  """A mistake that the user can correct: in a config, a file or a directory.

  The message is a single line that says what was wanted, what came, and what to do. The commands
  print it and exit with status 1. Every other exception is a bug and keeps its traceback.
  """


class Preempted(KeyboardInterrupt):
  """Raised when a signal has asked the run to stop; libraries do not catch it, as with Ctrl-C.

  The message is a single line that says how far the run is. The commands print it and
  exit with a status that tells a scheduler to start them again.
  """


def refuse(*mistakes: tuple[object, str]):
  """Raises the message of the first mistake that was made."""
  for made, message in mistakes:
    if made:
      raise UserError(message)


def type_and_message(error: BaseException) -> str:
  """Returns the type and the message of an error in one line."""
  return ' '.join(f'{type(error).__name__}: {error}'.split())


@contextlib.contextmanager
def optional(missing: str, warn: Callable[[str], None]) -> Iterator[None]:
  """Turns an error of optional work into one warning, so that the main work goes on.

  `missing` says what there is not, such as `the cost of the run is not recorded`.
  """
  try:
    yield
  except (Exception, SystemExit) as error:
    reason = error if isinstance(error, UserError) else type_and_message(error)
    warn(f'{missing}: {reason}'[:_LONGEST])


def is_out_of_memory(error: BaseException) -> bool:
  """Returns whether an error, or one that caused it, says that there is too little memory."""
  text, cause = str(error).lower(), error.__cause__
  return (isinstance(error, MemoryError) or any(words in text for words in _OUT_OF_MEMORY)
          or (cause is not None and is_out_of_memory(cause)))
