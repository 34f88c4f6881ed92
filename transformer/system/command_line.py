"""Starts the commands; turns a user's error into one line."""

import argparse
import atexit
import contextlib
import functools
import gc
import logging as python_logging
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import app, flags, logging

from transformer.config import type_of_setting
from transformer.errors import (
  StoppedBySignal,
  UserError,
  is_out_of_memory,
  one_line,
  short_repr,
  type_and_message,
)
from transformer.system import installation, machine
from transformer.system.signals import EXIT_STATUS, SIGNALS

_OUT_OF_MEMORY = (
  'error: out of memory; in training, lower train.tokens_per_batch or decode.batch_size, or '
  'raise optimizer.num_microbatches; in eval.py, lower --batch_size or --beam_size'
)


def entry_point(main: Callable[[Sequence[str]], None], **options) -> Callable[[], None]:
  """Returns a function that starts a command, with the options of `run`."""
  return functools.partial(run, main, **options)


def run(
  main: Callable[[Sequence[str]], None],
  takes_arguments: bool = False,
  hint: str = '',
  use_compilation_cache: bool = True,
):
  """Parses flags and calls `main`; a user's error becomes one line and exit status 1.

  Args:
    main: receives the command's name and its positional arguments.
    takes_arguments: whether positional arguments are allowed.
    hint: appended to the error about an unknown flag.
    use_compilation_cache: whether compiled programs are cached on disk; False for a command that
      starts other commands, or measures.
  """
  status = None

  def leave():
    """Exits at once, since Python's cleanup takes half a second."""
    if status is not None:
      os._exit(status)

  def guarded(argv):
    nonlocal status
    _set_log()
    sys.stdout.reconfigure(errors='backslashreplace')  # A file name need not be UTF-8.
    try:
      if len(argv) > 1 and not takes_arguments:
        raise UserError(
          f'unexpected argument {short_repr(argv[1])}; flags begin with --, and come before any --'
        )
      if use_compilation_cache:
        machine.enable_compilation_cache(os.environ)
      main(argv)
      sys.stdout.flush()
      ending = 0, ''
    except BaseException as error:
      ending = _ending(error)
      if ending is None:
        raise
    for signum in SIGNALS:  # Ignore signals from here on.
      signal.signal(signum, signal.SIG_IGN)
    status, message = ending
    if message:
      # The reader of standard error may have exited, too.
      with contextlib.suppress(OSError):
        print(message, file=sys.stderr, flush=True)
    sys.exit(status)

  machine.keep_freed_memory()
  atexit.register(leave)  # The first registered function is called last.
  # Traversing a million long-lived objects takes a quarter of a second.
  gc.set_threshold(100_000)
  # --help prints the docstring and the flags of the module, also in a script installed by pip.
  module = sys.modules[main.__module__]
  sys.modules['__main__'].__doc__ = module.__doc__ and installation.rewrite_commands(
    module.__doc__
  )
  for flag in flags.FLAGS.get_key_flags_for_module(module.__name__):
    flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
  app.run(guarded, flags_parser=functools.partial(_parse, hint=hint))


def _ending(error: BaseException) -> tuple | None:
  """Returns the exit status and the message for an error; None for a bug."""
  if isinstance(error, UserError):
    return 1, f'error: {error}'
  if isinstance(error, StoppedBySignal):
    return EXIT_STATUS, str(error)
  if isinstance(error, KeyboardInterrupt):
    return 130, str(error) or 'interrupted'
  # The reader of standard output has exited, like `head`.
  if isinstance(error, BrokenPipeError):
    return 0, ''
  if is_out_of_memory(error):
    return 1, installation.rewrite_commands(_OUT_OF_MEMORY)
  if isinstance(error, OSError):
    name = error.filename or 'a file'
    return 1, one_line(f'error: {name} cannot be used: {error.strerror or error}')
  return None


def _parse(argv, hint):
  """Parses flags, and loads the config that `--config` names."""
  try:
    for argument in argv[1:]:
      # ml_collections raises a different error for each kind of invalid name.
      if override := re.match(r'--?(?:no)?config\.([^=]*)', argument):
        type_of_setting(override[1])
    remaining = flags.FLAGS(_with_config(argv))
    _check_values()
    return remaining
  except (BrokenPipeError, SystemExit):
    # absl has printed the help, whose reader may have exited.
    with contextlib.suppress(BrokenPipeError):
      sys.stdout.flush()
    os._exit(0)
  except (UserError, flags.Error) as error:
    name = getattr(error, 'flagname', '')  # Set for an unknown flag.
    if '.' in name and 'config' in flags.FLAGS:
      hint = f'for a setting of the config, pass --config.{name}'
    if name.startswith('config.') and 'config' in flags.FLAGS:
      hint = 'it overrides a setting of a config; pass --config=configs/NAME.py, too'
    # absl wraps the message of a config or a parser, which is complete without the wrapping.
    message = str(
      error.__context__ if isinstance(error.__context__, UserError) else error
    )
    added = f'; {hint}' if name and hint else ''
    sys.exit(f'error: {one_line(" ".join(message.split()))}{added}')
  except Exception as error:  # ml_collections raises many types of errors.
    sys.exit(f'error: the flags cannot be read: {type_and_message(error)}')


def _check_values():
  """Raises `UserError` if a flag is set to an empty value."""
  for name in flags.FLAGS:
    flag = flags.FLAGS[name]
    if '.' not in name and flag.value in ('', [], ['']) and flag.value != flag.default:
      raise UserError(f'--{name}= is empty; remove it, or pass a value')


def workdir(arguments: Sequence[str]) -> str | None:
  """Returns the value of `--workdir` on a command line; None if it is absent."""
  return _split_flag('workdir', arguments)[0]


def _split_flag(name: str, arguments: Sequence[str]) -> tuple:
  """Returns the value of a flag before `--`, None if it is absent, and the other arguments."""
  parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
  parser.add_argument(
    f'--{name}', f'-{name}', nargs='?', const='', type=os.path.expanduser, dest='value'
  )
  end = arguments.index('--') if '--' in arguments else len(arguments)
  parsed, others = parser.parse_known_args(arguments[:end])
  return parsed.value, [*others, *arguments[end:]]


def _with_config(argv: Sequence[str]) -> list[str]:
  """Returns arguments with `--config=FILE`, which defaults to the config of the run."""
  if 'config' not in flags.FLAGS:
    return list(argv)
  command, *arguments = flags.FLAGS.read_flags_from_files(argv, force_gnu=False)
  config, others = _split_flag('config', arguments)
  folder = workdir(others)
  if config is None and folder and Path(folder, 'config.json').is_file():
    config = folder
  if not config:
    return list(argv)
  return [command, f'--config={installation.find_config(config)}', *others]


def _set_log():
  """Shows the log lines of this project and the warnings of libraries, in a readable format."""
  logging.set_verbosity(logging.INFO)
  handler = logging.get_absl_handler()
  handler.addFilter(_should_show)
  if sys.stderr.isatty():  # A shorter format at a terminal.
    handler.setFormatter(
      python_logging.Formatter('%(asctime)s %(levelname)s: %(message)s', '%X')
    )
  sys.unraisablehook = _print_unraisable


def _should_show(record) -> bool:
  path = os.path.abspath(record.pathname)
  if record.levelno >= python_logging.WARNING:
    # Orbax logs tracebacks of errors that it also raises; asyncio logs tracebacks of its tasks.
    return not (
      record.exc_info and (f'{os.sep}orbax{os.sep}' in path or record.name == 'asyncio')
    )
  return installation.is_project_file(Path(path))


def _print_unraisable(unraisable):
  """Prints an error that cannot be caught, except TensorStore's after a failed write."""
  if str(unraisable.exc_value) != 'Event loop is closed':
    sys.__unraisablehook__(unraisable)
