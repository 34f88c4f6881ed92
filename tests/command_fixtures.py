"""Fixtures that run `train.py` and other commands in a warm process, and a tiny run for them."""

import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import termios

import pytest

from transformer import files

ROOT = pathlib.Path(__file__).parents[1]
# Imports a command and its packages once, and forks for every command line, since importing JAX
# takes seconds.
SERVER = """
import importlib, json, os, sys, warnings
import transformer.experiment.train_loop
warnings.simplefilter('ignore')  # JAX warns of forks; it has not started here.
from transformer.system import command_line
module, takes_arguments = importlib.import_module(sys.argv[1]), sys.argv[2] == 'True'
for line in sys.stdin:
  arguments, out, err = json.loads(line)
  child = os.fork()
  if not child:
    for number, path in ((0, os.devnull), (1, out), (2, err)):
      os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = [module.__file__, *arguments]
    try:
      command_line.run(module.main, takes_arguments)
    except SystemExit as stop:
      if isinstance(stop.code, str):  # As Python does, but without half a second of cleaning up.
        print(stop.code, file=sys.stderr, flush=True)
        os._exit(1)
      raise
  print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
ENGLISH = [
  'a man in a red shirt climbs a rock .',
  'two women sit on the bench .',
  'the dog runs through wet grass .',
  'a child eats an apple .',
]
GERMAN = [
  'ein mann in rotem hemd klettert .',
  'zwei frauen sitzen auf der bank .',
  'der hund läuft durch nasses gras .',
  'ein kind isst einen apfel .',
]
# A vocabulary for each language.
SEPARATE = [
  '--config.data.shared_vocabulary=False',
  '--config.model.share_embeddings=False',
  '--config.data.vocabulary_size=310',
  '--config.data.source_vocabulary_size=290',
]
CONFIG = '''"""A tiny run."""

from configs import base


def get_config():
  config = base.get_config()
  config.data.source = 'text'
  config.data.dir = {folder!r}
  config.data.valid = 'valid'
  config.data.target_language = 'de'
  config.data.vocabulary_size = 300
  config.data.max_length = 64
  config.model.num_layers = 1
  config.model.model_dim = 8
  config.model.ff_dim = 11
  config.model.num_heads = 2
  config.train.tokens_per_batch = 320
  config.train.steps = 2
  config.train.checkpoint_every = 1
  config.decode.max_extra_length = 3
  config.decode.batch_size = 4
  return config
'''


class Command:
  """A process that runs `train.py`, `eval.py` or a command of `launch/` many times."""

  def __init__(self, name, folder, takes_arguments):
    environment = {**os.environ, 'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu'}
    self._process = subprocess.Popen(
      [sys.executable, '-c', SERVER, name, str(takes_arguments)],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      cwd=ROOT,
      env=environment,
    )
    self._out, self._err = folder / 'out', folder / 'err'

  def __call__(self, *arguments):
    """Runs the command; returns exit status, standard output and standard error."""
    status = self._run(arguments, self._err)
    return status, self._out.read_text('utf-8'), self._err.read_text('utf-8')

  def at_a_terminal(self, *arguments):
    """Runs the command with a terminal as standard error; returns the same."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    try:
      status = self._run(arguments, os.ttyname(theirs))
      return status, self._out.read_text('utf-8'), os.read(ours, 100_000).decode()
    finally:
      os.close(ours)
      os.close(theirs)

  def _run(self, arguments, err):
    line = json.dumps([list(map(str, arguments)), str(self._out), str(err)])
    self._process.stdin.write(line + '\n')
    self._process.stdin.flush()
    return int(self._process.stdout.readline())

  def rejects(self, *arguments):
    """Runs the command, and returns the single line of its error."""
    status, out, err = self(*arguments)
    assert status == 1 and out == '', (status, out, err)
    return _one_error(err)

  def rejects_alike(self, *arguments):
    """Returns the error of train.py, which `--check` must print too, and write nothing."""
    at_check = self.rejects(*arguments, '--check')
    folders = [
      argument.partition('=')[2]
      for argument in arguments
      if argument.startswith('--workdir=')
    ]
    assert not any((pathlib.Path(folder) / 'lock.json').exists() for folder in folders)
    assert self.rejects(*arguments) == at_check
    return at_check

  def close(self):
    self._process.stdin.close()
    self._process.stdout.close()
    self._process.wait()


def _one_error(err):
  lines = err.splitlines()
  errors = [
    line for line in lines if not re.match(r'[IW]\d{4} ', line)
  ]  # No lines of absl's log.
  assert (
    len(errors) == 1 and errors[0].startswith('error: ') and lines[-1] == errors[0]
  ), err
  return errors[0].removeprefix('error: ')


def _write_text(folder, prefix, english, german):
  for language, lines in (('en', english), ('de', german)):
    (folder / f'{prefix}.{language}').write_text(
      ''.join(f'{line}\n' for line in lines), encoding='utf-8'
    )


@pytest.fixture
def default_signal_handlers():
  """Lets a test, and the commands that it starts, hear Ctrl-C and a terminal that closes.

  A process ignores them, and so do those that it starts, if a shell started it in its background.
  """
  heard = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
  before = {number: signal.signal(number, handler) for number, handler in heard.items()}
  yield
  for number, handler in before.items():
    signal.signal(number, handler)


@pytest.fixture(scope='session')
def one_error():
  """Returns a function (standard error) -> the single line of an error, without log lines."""
  return _one_error


@pytest.fixture(scope='session')
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('commands')
  _write_text(folder, 'train', ENGLISH * 3, GERMAN * 3)
  _write_text(folder, 'valid', ENGLISH[:2], GERMAN[:2])
  _write_text(folder, 'test', ENGLISH[2:], GERMAN[2:])
  _write_text(folder, 'unequal', ENGLISH, GERMAN[:3])
  _write_text(folder, 'long', [' '.join(ENGLISH * 3)] * 2, GERMAN[:2])
  (folder / 'latin.en').write_bytes(b'a\nb\nc\n')
  (folder / 'empty').write_bytes(b'')
  (folder / 'latin.de').write_bytes('a\nüber\nc\n'.encode('latin-1'))
  (folder / 'tiny.py').write_text(CONFIG.format(folder=str(folder)), encoding='utf-8')
  return folder


@pytest.fixture(scope='session')
def change_settings():
  """Returns a function (workdir, group__key=value, …) that changes the config of a run."""

  def change(workdir, **changes):
    path = workdir / 'config.json'
    settings = files.read_sealed(path, 'the config')
    for name, value in changes.items():
      group, _, key = name.partition('__')
      settings[group][key] = value
    files.write_sealed(path, settings)

  return change


@pytest.fixture(scope='session')
def start_command(tmp_path_factory):
  """Returns a generator function (module, takes_arguments) that yields a `Command`."""

  def start(name, takes_arguments=False):
    running = Command(name, tmp_path_factory.mktemp(name), takes_arguments)
    yield running
    running.close()

  return start


@pytest.fixture(scope='session')
def train(start_command):
  yield from start_command('train')


@pytest.fixture(scope='session')
def evaluate(start_command):
  yield from start_command('eval')


@pytest.fixture(scope='session')
def trained(train, folder):
  """Returns the directory of a run of two steps, which no test may change."""
  workdir = folder / 'run'
  status, out, err = train(f'--config={folder}/tiny.py', f'--workdir={workdir}')
  assert status == 0, err
  assert out == ''
  # Only the project's own log lines, and none of a library.
  ours = {'train', *(path.stem for path in (ROOT / 'transformer').rglob('*.py'))}
  logs = [re.match(r'[IW]\d{4} .* (\w+)\.py:\d+\] ', line) for line in err.splitlines()]
  assert all(log and log[1] in ours for log in logs), err
  return workdir


@pytest.fixture(scope='session')
def separate(train, folder):
  """Returns the directory of a run with a vocabulary for each language; no test may change it."""
  workdir = folder / 'separate'
  status, out, err = train(
    f'--config={folder}/tiny.py', f'--workdir={workdir}', *SEPARATE
  )
  assert status == 0 and out == '', err
  assert 'training a source vocabulary of 290 pieces' in err
  assert 'training a vocabulary of 310 pieces' in err
  return workdir
