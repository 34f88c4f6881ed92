"""Commands print help and one-line errors, and exit with the right status."""

import ast
import os
import re
import subprocess
import sys

import pytest

from tests.command_fixtures import ROOT
from transformer.system import installation


@pytest.mark.parametrize('flags', ['--workdir s3://b', '--workdir=file:///c'])
def test_a_path_with_a_scheme_is_rejected(evaluate, flags):
  message = evaluate.rejects(*flags.split())
  path = re.split('[= ]', flags)[-1]
  assert message.startswith(f'{path} must be a local path')
  assert re.search(r'begins with \w+://$', message)


@pytest.mark.parametrize('name', ['train', 'eval'])
def test_commands_print_help_and_errors_without_importing_jax(
  name, tmp_path, monkeypatch, one_error
):
  def run(command, *flags):
    done = subprocess.run(
      [sys.executable, '-X', 'importtime', command, *flags],
      cwd=ROOT,
      text=True,
      capture_output=True,
      stdin=subprocess.DEVNULL,
      env={**os.environ, 'PYTHONSAFEPATH': '1'},
    )
    imported = re.findall(r'^import time: .*\| +(\S+)$', done.stderr, re.MULTILINE)
    heavy = {
      'jax',
      'flax',
      'optax',
      'orbax',
      'tensorflow_datasets',
      'sentencepiece',
      'sacrebleu',
      'tensorboardX',
    }
    assert 'absl.flags' in imported
    assert not heavy & {module.split('.')[0] for module in imported}
    lines = [
      line for line in done.stderr.splitlines() if not line.startswith('import time: ')
    ]
    return done.returncode, done.stdout, '\n'.join(lines)

  path, script = ROOT / f'{name}.py', tmp_path / 'attention-it'
  status, helped, err = run(path, '--help')
  assert (status, err) == (0, '')
  written = ast.get_docstring(ast.parse(path.read_text('utf-8')), clean=False)
  assert written in helped
  for flag in re.findall(r"DEFINE\w+\('(\w+)'", path.read_text('utf-8')):
    assert f'--{flag}' in helped or f'--[no]{flag}' in helped
  shared = {'train': ['config', 'config.GROUP.KEY'], 'eval': ['checkpoint', 'average']}[
    name
  ]
  assert all(f'--{flag}' in helped for flag in shared)
  for flag in ('--nonsense', '--workdir='):
    status, out, err = run(path, f'--workdir={tmp_path}/run', flag)
    assert (status, out) == (1, '') and flag.strip('-') in one_error(err)
    assert len(err.splitlines()) == 1

  # An installed command says the same in its own words. Its script is as pip writes it.
  script.write_text(
    f'import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom {name} import start\nstart()\n'
  )
  monkeypatch.setattr(sys, 'argv', [str(script)])
  spelled = installation.rewrite_commands(written)
  assert f'  attention-{name} ' in spelled
  assert run(script, '-?')[:2] == (
    0,
    helped.replace(written, spelled).replace(f'\n{path}:\n', f'\n{script}:\n'),
  )


def run_code(main, *flags, **options):
  """Returns status, standard output and standard error of a command with this function `main`."""
  code = f"""
from absl import flags
from transformer.errors import UserError
from transformer.system import command_line
lines = flags.DEFINE_integer('lines', 0, 'How many to print.')
{main}
command_line.run(main)"""
  done = subprocess.run(
    [sys.executable, '-c', code, *flags],
    cwd=ROOT,
    text=True,
    check=False,
    **{'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, **options},
  )
  return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
  ('raised', 'status', 'line'),
  [
    ("UserError('no')", 1, 'error: no'),
    ('KeyboardInterrupt()', 130, 'interrupted'),
    ('BrokenPipeError()', 0, ''),
    (
      "PermissionError(13, 'Permission denied', 'x.json')",
      1,
      'error: x.json cannot be used: Permission denied',
    ),
    ("ValueError('lost') from MemoryError()", 1, 'error: out of memory; in training'),
  ],
)
def test_errors_that_are_not_bugs_end_without_a_traceback(raised, status, line):
  ended, out, err = run_code(f'def main(_):\n  raise {raised}')
  assert (
    (ended, out) == (status, '')
    and err.startswith(line)
    and err.count('\n') == bool(line)
  )


@pytest.mark.parametrize(
  ('ending', 'status'),
  [
    ('pass', 0),
    ('raise StoppedBySignal("stopped")', 75),
    ('raise KeyboardInterrupt("stopped")', 130),
  ],
)
@pytest.mark.parametrize('number', ['SIGTERM', 'SIGINT'])
def test_a_signal_after_the_end_changes_no_status(ending, status, number):
  """It comes while libraries clean up."""
  ended, _, err = run_code(f"""
import atexit, os, signal, time
from transformer.errors import StoppedBySignal
atexit.register(lambda: os.kill(os.getpid(), signal.{number}))
def main(_):
  {ending}""")
  assert (ended, err) == (status, 'stopped\n' if status else '')


def test_the_last_printed_line_arrives_and_a_bug_keeps_its_traceback():
  status, out, err = run_code(
    'def main(_):\n  print("here")\n  raise RuntimeError("why")',
    env={
      name: value for name, value in os.environ.items() if name != 'PYTHONUNBUFFERED'
    },
  )
  assert (status, out) == (1, 'here\n') and 'Traceback' in err and 'why' in err
  assert run_code('def main(_):\n  print("here")') == (0, 'here\n', '')


@pytest.mark.parametrize('flags', [['--help'], ['--lines=1'], ['--lines=100000']])
def test_a_closed_pipe_is_no_error(flags):
  read, write = os.pipe()
  os.close(read)
  status, _, err = run_code(
    'def main(_):\n  print(*range(lines.value), sep="\\n")', *flags, stdout=write
  )
  os.close(write)
  assert (status, err) == (0, '')
