"""Starts the commands, and ends them with one line after a user's mistake."""

import argparse
import atexit
import contextlib
import functools
import gc
import logging as python_logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import app, flags, logging

from transformer import files
from transformer.config import check_name
from transformer.errors import Preempted, UserError, is_out_of_memory
from transformer.system import installation, machine
from transformer.system.jax_environment import keep_compiled_programs
from transformer.system.signals import EXIT_STATUS

_CONFIG_FLAGS = ('--config', '-config')
# Texts that may begin as a URL does. Every other text is a path, or nothing that has a scheme.
_NO_PATHS = ('sentence', 'translation', 'storage')


def run(main: Callable[[Sequence[str]], None], takes_arguments: bool = False, hint: str = '',
        launches: bool = False):
  """Parses flags, calls `main`, and turns a user's mistake into one line and status 1.

  Args:
    main: gets the command's name and its arguments that are not flags.
    takes_arguments: whether there may be such arguments.
    hint: added to the error about an unknown flag.
    launches: whether the environment is left as it is, without a cache of compiled programs: for a
      `main` that starts other commands, which inherit it, or that measures.
  """
  status = None
  for name in ('stdout', 'stderr'):
    if getattr(sys, name) is None:  # It was closed, as `>&-` does.
      setattr(sys, name, open(os.devnull, 'w', encoding='utf-8'))  # noqa: SIM115

  def leave():
    """Ends the process at once; Python would spend half a second on cleaning up."""
    try:
      sys.stdout.flush()
    except BrokenPipeError:  # Python would flush it again at its end, and print an error.
      os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if status is not None:
      os._exit(status)

  def guarded(argv):
    nonlocal status
    _set_log()
    sys.stdout.reconfigure(errors='backslashreplace')  # A file name need not be UTF-8.
    try:
      if len(argv) > 1 and not takes_arguments:
        raise UserError(f'unexpected argument {argv[1]!r}; ' + (
            'leave out the -- before it' if argv[1].startswith('-') else 'flags begin with --'))
      if not launches:
        keep_compiled_programs(os.environ)
      main(argv)
      sys.stdout.flush()
      sys.stderr.flush()
      status = 0
    except UserError as error:
      sys.exit(f'error: {error}')
    except Preempted as stop:
      status = EXIT_STATUS
      with contextlib.suppress(OSError):  # The reader of standard error may have ended too.
        print(stop, file=sys.stderr, flush=True)
      sys.exit(EXIT_STATUS)
    except KeyboardInterrupt:
      print('interrupted', file=sys.stderr)
      sys.exit(130)
    except BrokenPipeError:  # The reader of standard output has ended, as `head` does.
      status = 0
    except Exception as error:
      if is_out_of_memory(error):
        sys.exit(installation.spell_commands(
            'error: there is too little memory; in training, lower train.tokens_per_batch or '
            'decode.batch_size, or raise optimizer.accumulate; in eval.py, lower --batch_size or '
            '--beam_size'))
      if isinstance(error, OSError):
        sys.exit(f'error: {error.filename or "a file"} cannot be used: {error.strerror or error}')
      raise

  machine.keep_freed_memory()
  atexit.register(leave)  # The first function to be registered is called last.
  # Imports and tracing make a million objects that stay. At the default threshold, the garbage
  # collector would search them for a quarter of a second at every start.
  gc.set_threshold(100_000)
  _describe(main.__module__)
  app.run(guarded, flags_parser=functools.partial(_parse, hint=hint))


def _describe(name: str):
  """Lets --help print the docstring and the flags of a module, also in a script that pip wrote."""
  module = sys.modules[name]
  sys.modules['__main__'].__doc__ = module.__doc__ and installation.spell_commands(module.__doc__)
  for flag in flags.FLAGS.get_key_flags_for_module(name):
    flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)


def _parse(argv, hint=''):
  """Parses flags, and loads the config that they name."""
  try:
    for argument in argv[1:]:
      # ml_collections has a different error for each mistake in a name.
      if override := re.match(r'--?(?:no)?config\.([^=]*)', argument):
        check_name(override[1])
    remaining = flags.FLAGS(_find_configs(_with_config(argv)))
    _check_paths(remaining[1:])
    # ml_collections reports a missing file at the first use.
    if ('config' in flags.FLAGS and (config := flags.FLAGS['config']).present
        and not hasattr(config.value, 'to_dict')):
      raise UserError(f'get_config() of {config.config_filename} must return an '
                      f'ml_collections.ConfigDict; it returns {type(config.value).__name__}')
    return remaining
  except SystemExit:  # absl exits with 1 after printing help.
    if not any(re.fullmatch(r'--?(?:help(?:short|full|xml)?|\?)', flag) for flag in argv[1:]):
      raise
    sys.exit(0)
  except flags.UnrecognizedFlagError as error:
    if error.flagname.startswith('config.') and 'config' in flags.FLAGS:
      hint = 'it changes a config, so give --config=configs/NAME.py too'
    sys.exit('; '.join(filter(None, (f'error: {error}', hint))))
  except BrokenPipeError:  # The reader of the help has ended.
    sys.exit(0)
  except (UserError, flags.Error) as error:
    sys.exit(f'error: {_last_line(error)}')
  except OSError as error:
    sys.exit(f'error: the config cannot be loaded: {_last_line(error).rpartition("] ")[2]}; the '
             f'current folder is {os.getcwd()}; --config takes the path of a file; those of this '
             f'project are in {installation.configs_folder()}')
  except Exception as error:  # A config is a program, and may raise anything.
    hint = (f'; modules of configs are looked for in {Path("configs").absolute()} and in '
            f'{installation.configs_folder()}' if getattr(error, 'name', None) == 'configs' else '')
    sys.exit(f'error: the config cannot be loaded: {type(error).__name__}: '
             f'{_last_line(error)}{hint}')


def _check_paths(arguments: Sequence[str]):
  """Refuses every argument and every flag whose path has a scheme."""
  for path in ','.join(arguments).split(','):
    files.check_local('an argument', path)
  for name in set(flags.FLAGS).difference(_NO_PATHS):
    value = flags.FLAGS[name].value
    for path in value if isinstance(value, list) else [value]:
      if isinstance(path, str):
        files.check_local(f'--{name}', path)


def workdir(arguments: Sequence[str]) -> str | None:
  """Returns the value of `--workdir` on a command line, if it is there."""
  parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
  parser.add_argument('--workdir', '-workdir', nargs='?', type=os.path.expanduser)
  return parser.parse_known_args(arguments)[0].workdir


def _with_config(argv: Sequence[str]) -> list[str]:
  """Adds `--config=RUN` for a command with configs that names none, and a run as `--workdir`."""
  named = flags.FLAGS.read_flags_from_files(argv, force_gnu=False)
  folder = workdir(named[1:])
  if ('config' not in flags.FLAGS or not folder or not Path(folder, 'config.json').is_file()
      or any(argument.partition('=')[0] in _CONFIG_FLAGS for argument in named)):
    return list(argv)
  return [argv[0], f'--config={folder}', *argv[1:]]


def _find_configs(argv: Sequence[str]) -> list[str]:
  """Returns the arguments with the config's path as `find_config` gives it, and lets it import."""
  replaced = list(argv)
  for place in range(1, len(argv)):
    name, equals, value = argv[place].partition('=')
    if argv[place] == '--':
      break
    if argv[place - 1] in _CONFIG_FLAGS:
      name, equals, value = '', '', argv[place]
    elif name not in _CONFIG_FLAGS or not equals:
      continue
    files.check_local('--config', value)
    config = installation.find_config(value)
    installation.make_importable(Path(config).absolute().parent)
    replaced[place] = f'{name}{equals}{config}'
  return replaced


def _last_line(error: Exception) -> str:
  """Returns the reason in an error of absl or ml_collections, which may hold a traceback."""
  lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ['no message']
  # A config may raise a `UserError`, whose message needs no more words.
  _, ours, message = lines[-1].partition(f'{UserError.__module__}.{UserError.__qualname__}: ')
  return message if ours else ' '.join(dict.fromkeys((lines[0], lines[-1])))


def _set_log():
  """Shows the log lines of this project and the warnings of libraries, as people read them."""
  logging.set_verbosity(logging.INFO)
  handler = logging.get_absl_handler()
  handler.addFilter(_should_show)
  if sys.stderr.isatty():
    handler.setFormatter(_LinesForPeople())
  sys.unraisablehook = _print_unraisable


class _LinesForPeople(python_logging.Formatter):
  """Formats log lines for a terminal: the time of day, and whether it is a warning."""

  def formatMessage(self, record) -> str:
    level = f'{record.levelname.lower()}: ' if record.levelno >= python_logging.WARNING else ''
    return f'{self.formatTime(record, "%H:%M:%S")} {level}{record.message}'


def _should_show(record) -> bool:
  path = os.path.abspath(record.pathname)
  if record.levelno >= python_logging.WARNING:
    # Orbax logs the traceback of an error that it also raises, and asyncio those of its tasks.
    return not (record.exc_info and (f'{os.sep}orbax{os.sep}' in path or record.name == 'asyncio'))
  return installation.is_ours(Path(path))


def _print_unraisable(unraisable):
  """Prints an error that cannot be caught, but not those of TensorStore after a failed write."""
  if str(unraisable.exc_value) != 'Event loop is closed':
    sys.__unraisablehook__(unraisable)
