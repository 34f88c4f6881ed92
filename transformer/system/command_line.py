"""Starts the commands, and ends them with one line after a user's mistake."""

import argparse
import atexit
import contextlib
import errno
import functools
import gc
import itertools
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

# This file checks the names of settings: ml_collections has a different error for each mistake.
_OVERRIDE = re.compile(r'--?(?:no)?config\.([^=]*)')
_CONFIG_FLAGS = ('--config', '-config')
# Texts that may begin as a URL does. Every other text is a path, or nothing that has a scheme.
_NO_PATHS = ('sentence', 'translation', 'storage')
_HELP = re.compile(r'--?(?:help(?:short|full|xml)?|\?)')


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

  def leave():
    """Ends the process at once; Python would spend half a second on cleaning up."""
    _flush_output()
    if status is not None:
      os._exit(status)

  def guarded(argv):
    nonlocal status
    logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().addFilter(_should_show)
    if sys.stderr.isatty():
      logging.get_absl_handler().setFormatter(_LinesForPeople())
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
      if line := _in_words(error):
        sys.exit(f'error: {line}')
      raise

  for name in ('stdout', 'stderr'):
    if getattr(sys, name) is None:  # It was closed, as `>&-` does.
      setattr(sys, name, open(os.devnull, 'w', encoding='utf-8'))  # noqa: SIM115
  sys.unraisablehook = _print_unraisable
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
      if override := _OVERRIDE.match(argument):
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
    if not any(map(_HELP.fullmatch, argv[1:])):
      raise
    sys.exit(0)
  except flags.UnrecognizedFlagError as error:
    if error.flagname.startswith('config.') and 'config' in flags.FLAGS:
      hint = 'it changes a config, so give --config=configs/NAME.py too'
    sys.exit('; '.join(filter(None, (f'error: {error}', hint))))
  except BrokenPipeError:  # The reader of the help has ended.
    sys.exit(0)
  except (UserError, flags.Error, OSError) as error:
    sys.exit(f'error: {_in_one_line(error)}')
  except Exception as error:  # A config is a program, and may raise anything.
    hint = (f'; modules of configs are looked for in {Path("configs").absolute()} and in '
            f'{installation.configs_folder()}' if getattr(error, 'name', None) == 'configs' else '')
    sys.exit(f'error: the config cannot be loaded: {type(error).__name__}: '
             f'{_in_one_line(error)}{hint}')


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
  for place, (before, argument) in enumerate(itertools.pairwise(argv), start=1):
    if argument == '--':
      break
    name, equals, value = argument.partition('=')
    if before in _CONFIG_FLAGS:
      name, equals, value = '', '', argument
    elif name not in _CONFIG_FLAGS or not equals:
      continue
    files.check_local('--config', value)
    config = installation.find_config(value)
    if config not in (value, installation.settings_of(value)):
      app.call_after_init(lambda value=value, config=config: logging.info(
          '%s is not in %s; using %s', value, os.getcwd(), config))
    installation.make_importable(Path(config).absolute().parent)
    replaced[place] = f'{name}{equals}{config}'
  return replaced


def _flush_output():
  """Prints buffered output, except to a pipe whose reader has ended."""
  try:
    sys.stdout.flush()
  except BrokenPipeError:
    # Python would flush standard output again at its end, and print an error.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _in_one_line(error: Exception) -> str:
  """Returns the reason in an error of absl or ml_collections, which may hold a traceback."""
  lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ['no message']
  if isinstance(error, OSError):
    reason = lines[-1].rpartition('] ')[2]
    if os.strerror(errno.ENOENT) in reason:
      reason += (f'; the current folder is {os.getcwd()}; --config takes the path of a file; those '
                 f'of this project are in {installation.configs_folder()}')
    return f'the config cannot be loaded: {reason}'
  # A config may raise a `UserError`, whose message needs no more words.
  _, ours, message = lines[-1].partition(f'{UserError.__module__}.{UserError.__qualname__}: ')
  return message if ours else ' '.join(dict.fromkeys((lines[0], lines[-1])))


def _in_words(error: Exception) -> str:
  """Returns what a user can do about an error that is no bug; '' if it may be one."""
  if is_out_of_memory(error):
    return installation.spell_commands(
        'there is too little memory; in training, lower train.tokens_per_batch or raise '
        'optimizer.accumulate; in eval.py, lower --batch_size or --beam_size')
  if isinstance(error, OSError):
    return f'{error.filename or "a file"} cannot be used: {error.strerror or error}'
  if isinstance(error, RuntimeError) and 'home directory' in str(error):  # Of `Path.expanduser`.
    return 'a path begins with ~, and there is no such home directory; write it out'
  if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
    return ('the system gives this process no further thread; raise its limits of processes and '
            'memory: ulimit -u and ulimit -v')
  return ''


def _print_unraisable(unraisable):
  """Prints an error that cannot be caught, but not those of TensorStore after a failed write."""
  if str(unraisable.exc_value) != 'Event loop is closed':
    sys.__unraisablehook__(unraisable)


class _LinesForPeople(python_logging.Formatter):
  """Formats log lines for a terminal: the time of day, and whether it is a warning."""

  def formatMessage(self, record) -> str:
    level = f'{record.levelname.lower()}: ' if record.levelno >= python_logging.WARNING else ''
    return f'{self.formatTime(record, "%H:%M:%S")} {level}{record.message}'


def _should_show(record) -> bool:
  """Selects the log lines of this project, and the warnings of libraries."""
  path = os.path.abspath(record.pathname)
  if record.levelno >= 30:
    # Orbax logs the traceback of an error that it also raises, and asyncio logs the tracebacks
    # of Orbax's other tasks. The commands print such an error in one line.
    return not (record.exc_info and (f'{os.sep}orbax{os.sep}' in path or record.name == 'asyncio'))
  return installation.is_ours(Path(path))
