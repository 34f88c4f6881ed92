"""How the commands start, and how they end when a person made a mistake."""

import os
import sys
from collections.abc import Callable, Sequence

from absl import app, flags, logging

from transformer.errors import UserError

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(main: Callable[[Sequence[str]], None]):
  """Parses flags, calls `main`, and turns a user's mistake into one line and status 1."""
  def guarded(argv):
    logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().addFilter(_is_ours_or_urgent)
    try:
      if len(argv) > 1:
        raise UserError(f'unexpected argument {argv[1]!r}; flags begin with --')
      main(argv)
    except UserError as error:
      sys.exit(f'error: {error}')

  app.run(guarded, flags_parser=_parse)


def _parse(argv):
  """Parses flags; for an unknown config key, ml_collections raises other things than absl does."""
  try:
    return flags.FLAGS(argv)
  except (flags.Error, KeyError, AttributeError, TypeError, ValueError, OSError) as error:
    message = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
    sys.exit(f'error: {" ".join(str(message).split())}')


def _is_ours_or_urgent(record) -> bool:
  """Keeps libraries, which tell much about checkpoints and devices, to their warnings."""
  if record.levelno >= 30:
    return True
  path = os.path.abspath(record.pathname)
  return path.startswith(_ROOT) and 'site-packages' not in path
