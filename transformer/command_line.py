"""How the commands start, and how they end when a person made a mistake."""

import atexit
import contextlib
import errno
import functools
import gc
import itertools
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from absl import app, flags, logging

from transformer import host_memory
from transformer.config import check_name
from transformer.errors import Preempted, UserError
from transformer.startup import keep_compiled_programs
from transformer.training import run_directory
from transformer.training.preemption import EXIT_STATUS

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Checked before ml_collections meets them, whose errors for unknown names are many.
_OVERRIDE = re.compile(r'--?(?:no)?config\.([^=]*)')
_CONFIG = re.compile(r'--?config(?:=(.*))?')
_HELP = re.compile(r'--?(?:help(?:short|full|xml)?|\?)')

# The flags that are defined here are those of the command that asks for them, so --help lists them.
flags.disclaim_key_flags()


def run(main: Callable[[Sequence[str]], None], takes_arguments: bool = False, hint: str = ''):
  """Parses flags, calls `main`, and turns a user's mistake into one line and status 1.

  Args:
    main: is given the command's name, and its arguments that are no flags.
    takes_arguments: whether there may be any.
    hint: what else the error says where a flag is not known.
  """
  done = []

  def leave():
    """Ends a process that is done, where Python would spend half a second on tidying up."""
    _flush_output()
    if done:
      os._exit(done[0])

  def guarded(argv):
    logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().addFilter(_is_ours_or_urgent)
    sys.stdout.reconfigure(errors='backslashreplace')  # The name of a file need not be UTF-8.
    try:
      if len(argv) > 1 and not takes_arguments:
        raise UserError(f'unexpected argument {argv[1]!r}; ' + (
            'leave out the -- before it' if argv[1].startswith('-') else 'flags begin with --'))
      keep_compiled_programs(os.environ)
      main(argv)
      sys.stdout.flush()
      sys.stderr.flush()
      done.append(0)
    except UserError as error:
      sys.exit(f'error: {error}')
    except Preempted as stop:
      done.append(EXIT_STATUS)
      with contextlib.suppress(OSError):  # Whoever read it may have had the signal too.
        print(stop, file=sys.stderr, flush=True)
      sys.exit(EXIT_STATUS)
    except KeyboardInterrupt:
      print('interrupted', file=sys.stderr)
      sys.exit(130)
    except BrokenPipeError:  # Whoever read standard output has had enough, as `head` has.
      done.append(0)
    except OSError as error:
      sys.exit(f'error: {error.filename or "a file"} cannot be used: {error.strerror or error}')
    except RuntimeError as error:  # JAX's own is one.
      if 'RESOURCE_EXHAUSTED' not in str(error):
        raise
      sys.exit('error: the device is out of memory; in training, lower train.tokens_per_batch or '
               'raise optimizer.accumulate; in eval.py, lower --batch_size or --beam_size')

  sys.unraisablehook = _all_but_echoes
  host_memory.keep()
  atexit.register(leave)  # The first to be registered is the last to be called.
  # Importing and tracing make a million objects that stay, and looking through them
  # again and again for what has gone takes a quarter of a second of every start.
  gc.set_threshold(100_000)
  app.run(guarded, flags_parser=functools.partial(_parse, hint=hint))


@functools.cache
def define_config() -> flags.FlagHolder:
  """Defines `--config` and, once it is given, a flag for each of its keys; the same for all."""
  from ml_collections import config_flags  # Not every command has a config.
  return config_flags.DEFINE_config_file(
      'config', None, 'The config file. --config.GROUP.KEY=VALUE changes a setting of it, such as '
      '--config.train.steps=100; transformer/*/config.py has them all.')


def define_checkpoint(
    choices: str = 'best, latest, or a step.') -> tuple[flags.FlagHolder, flags.FlagHolder]:
  """Defines `--checkpoint`, with what may be said there, and `--average`: a run's parameters."""
  return (flags.DEFINE_string('checkpoint', 'best', choices),
          flags.DEFINE_integer('average', 1, 'Average the parameters of this many checkpoints.'))


def check_at_least(least: int, *holders: flags.FlagHolder):
  """Refuses a flag's number that is below another.

  Raises:
    UserError: names the first such flag.
  """
  for flag in holders:
    if flag.value < least:
      raise UserError(f'--{flag.name} must be at least {least}; got {flag.value}')


def check_named(*holders: flags.FlagHolder):
  """Refuses a flag that is given, and empty.

  Raises:
    UserError: names the first such flag.
  """
  for flag in holders:
    if flag.value == '':
      raise UserError(f'--{flag.name}= names nothing; leave it out, or give it a value')


def check_file(flag: str, path: Path):
  """Refuses a file that could not be written, before the work that it is for.

  Args:
    flag: the name of the flag that names it.
    path: the file; it need not be there.

  Raises:
    UserError: it is a directory, or there can be none for it.
  """
  if path.is_dir():
    raise UserError(f'--{flag} must name a file; {path} is a directory')
  check_folder(flag, path.parent)


def check_not_read(flag: str, path: Path, inputs: Iterable[str | os.PathLike],
                   workdir: str | None = None):
  """Refuses to replace a file that the command reads, by whatever name it is called.

  Args:
    flag: the name of the flag that names the file to write.
    path: that file; it need not be there.
    inputs: the files to read, `-` for standard input; they need not be there.
    workdir: the run to read, if there is one.

  Raises:
    UserError: it is one of them.
  """
  own = (run_directory.CONFIG, run_directory.RUN, run_directory.VOCABULARY) if workdir else ()
  for each in (*inputs, *(Path(workdir, name) for name in own)):
    try:
      read = os.stat(0 if each == '-' else Path(each).expanduser())
      same = os.path.samestat(read, os.stat(path))
    except OSError:  # One of them is not there.
      continue
    if same and stat.S_ISREG(read.st_mode):  # And neither a terminal nor /dev/null.
      raise UserError(f'--{flag}={path} would replace what is read: it is '
                      f'{"standard input" if each == "-" else each}; name another file')


def check_folder(flag: str, folder: Path):
  """Refuses a folder that could not be made or written to, before the work that it is for.

  Args:
    flag: the flag that it comes from.
    folder: it need not exist.

  Raises:
    UserError: it is a file, or under one, or may not be written to.
  """
  there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
  if not there.is_dir():
    raise UserError(f'--{flag} needs a directory; {there} is a file')
  if not os.access(there, os.W_OK):
    raise UserError(f'--{flag} needs a directory to write to; {there} may not be written to')


def _parse(argv, hint=''):
  """Parses flags, and loads the config that they name."""
  try:
    for argument in argv[1:]:
      if override := _OVERRIDE.match(argument):
        check_name(override[1])
    for argument, following in itertools.pairwise([*argv, '']):
      if config := _CONFIG.fullmatch(argument):
        _make_importable(Path(config[1] or following).absolute().parent)
    remaining = flags.FLAGS(argv)
    if 'config' in flags.FLAGS and flags.FLAGS.config is not None:
      flags.FLAGS.config.keys()  # ml_collections tells of a missing file on first use.
    return remaining
  except SystemExit:
    if not any(_HELP.fullmatch(argument) for argument in argv[1:]):
      raise
    sys.exit(0)  # absl leaves with 1, as if it were a mistake to ask for help.
  except flags.UnrecognizedFlagError as error:
    sys.exit('; '.join(filter(None, (f'error: {error}', hint))))
  except BrokenPipeError:  # Whoever read the help has had enough.
    sys.exit(0)
  except (UserError, flags.Error, OSError) as error:
    sys.exit(f'error: {_in_one_line(error)}')
  except Exception as error:  # A config is a program, and may go wrong in any way.
    hint = ('; it is a folder of this project, which is not installed with it; start where it is, '
            'or name a config in it' if getattr(error, 'name', None) == 'configs' else '')
    sys.exit(f'error: the config cannot be loaded: {type(error).__name__}: '
             f'{_in_one_line(error)}{hint}')


def _make_importable(folder: Path):
  """Lets a config import those beside it, as `from configs import base`, wherever it is used.

  Args:
    folder: that the config lies in.
  """
  if folder.name == 'configs' and str(folder.parent) not in sys.path:
    sys.path.append(str(folder.parent))


def _flush_output():
  """Prints what still waits to be printed, but not to a pipe that nobody reads any more."""
  try:
    sys.stdout.flush()
  except BrokenPipeError:
    # Python would flush it once more at its end, and complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _in_one_line(error: Exception) -> str:
  """What went wrong; absl and ml_collections wrap it in a story, or in a whole traceback."""
  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  if isinstance(error, OSError):
    reason = lines[-1].rpartition('] ')[2]
    if os.strerror(errno.ENOENT) in reason:
      reason += f'; it was looked for in {os.getcwd()}; --config takes the path of a file'
    return f'the config cannot be loaded: {reason}'
  # A config that refuses its argument has said all that there is to say.
  _, ours, message = lines[-1].partition(f'{UserError.__module__}.{UserError.__qualname__}: ')
  return message if ours else ' '.join(dict.fromkeys((lines[0], lines[-1])))


def _all_but_echoes(unraisable):
  """Prints what no one can catch, but not what TensorStore's threads say after a failed write."""
  if str(unraisable.exc_value) != 'Event loop is closed':
    sys.__unraisablehook__(unraisable)


def _is_ours_or_urgent(record) -> bool:
  """Keeps libraries, which tell much about checkpoints and devices, to their warnings."""
  path = os.path.abspath(record.pathname)
  if record.levelno >= 30:
    # Orbax logs the traceback of an error that it raises as well, which ends in a line of ours,
    # and asyncio those of all that Orbax was doing beside it.
    return not (record.exc_info and (f'{os.sep}orbax{os.sep}' in path or record.name == 'asyncio'))
  return path.startswith(_ROOT) and 'site-packages' not in path
