"""Commands check their folders before the work, print help, and end with the right status."""

import ast
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

from transformer.system import installation

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize('flags', [
    '--workdir s3://b', '--source=file:///a', '--ensemble=run,gs://b',
    '--reference=a --reference=hdfs://b'])
def test_a_path_with_a_scheme_is_refused_by_name(evaluate, tmp_path, flags):
  message = evaluate.refuses(f'--workdir={tmp_path}/run', *flags.split())
  assert message.startswith(f'{re.split("[= ]", flags)[0]} must be a path on this machine')
  assert re.search(r'which begins with \w+://$', message)


@pytest.mark.parametrize('name', ['train', 'eval'])
def test_as_a_process_a_command_helps_and_refuses(name, tmp_path, one_error):
  def run(*flags):
    return subprocess.run([sys.executable, f'{name}.py', *flags], cwd=ROOT, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, 'PYTHONSAFEPATH': '1'})

  spec = importlib.util.spec_from_file_location(name, ROOT / f'{name}.py')
  helped = run('--help')
  assert helped.returncode == 0
  for line in pathlib.Path(spec.origin).read_text(encoding='utf-8').split('"""')[1].splitlines():
    assert line in helped.stdout
  for flag in re.findall(r"DEFINE\w+\('(\w+)'", pathlib.Path(spec.origin).read_text('utf-8')):
    assert f'--{flag}' in helped.stdout or f'--[no]{flag}' in helped.stdout
  shared = {'train': ['config', 'config.GROUP.KEY'], 'eval': ['checkpoint', 'average']}[name]
  assert all(f'--{flag}' in helped.stdout for flag in shared)
  assert helped.stderr == ''
  refused = run(f'--workdir={tmp_path}/run', '--nonsense')
  assert (refused.returncode, refused.stdout) == (1, '')
  assert 'nonsense' in one_error(refused.stderr) and len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize('name', ['train', 'eval'])
def test_as_an_installed_command_it_prints_the_same_help(name, tmp_path, monkeypatch):
  path, script = ROOT / f'{name.replace(".", "/")}.py', tmp_path / 'attention-it'
  script.write_text(f'from {name} import start\nstart()\n')  # As pip writes it.

  def help_of(command):
    return subprocess.run([sys.executable, command, '--help'], cwd=ROOT, text=True, check=True,
                          capture_output=True,
                          env={**os.environ, 'PYTHONPATH': str(ROOT)}).stdout

  written = ast.get_docstring(ast.parse(path.read_text('utf-8')), clean=False)
  monkeypatch.setattr(sys, 'argv', [str(script)])
  spelled = installation.spell_commands(written)
  assert f'  attention-{name.split(".")[-1]} ' in spelled
  assert help_of(script) == help_of(path).replace(written, spelled).replace(
      f'\n{path}:\n', f'\n{script}:\n')


@pytest.mark.parametrize(('name', 'flag'), [
    ('train', '--help'), ('eval', '--help'), ('eval', '-?'), ('train', '--helpfull'),
    ('train', '--workdir='), ('train', '--nonsense'), ('eval', '--workdir='),
    ('eval', '--source=-')])
def test_help_and_a_mistake_do_not_wait_for_jax(name, flag):
  done = subprocess.run([sys.executable, '-X', 'importtime', f'{name}.py', flag], cwd=ROOT,
                        text=True, capture_output=True, stdin=subprocess.DEVNULL)
  assert done.returncode == (not flag.startswith(('--help', '-?')))
  imported = re.findall(r'^import time: .*\| +(\S+)$', done.stderr, re.MULTILINE)
  assert 'absl.flags' in imported
  heavy = {'jax', 'flax', 'optax', 'orbax', 'tensorflow_datasets', 'sentencepiece', 'sacrebleu',
           'tensorboardX'}
  assert not heavy & {each.split('.')[0] for each in imported}


@pytest.mark.parametrize(('raised', 'status', 'line'), [
    ("UserError('no')", 1, 'error: no'),
    ('KeyboardInterrupt()', 130, 'interrupted'),
    ('BrokenPipeError()', 0, ''),
    ("PermissionError(13, 'Permission denied', 'x.json')", 1,
     'error: x.json cannot be used: Permission denied'),
    ("ValueError('lost') from MemoryError()", 1,
     'error: there is too little memory; in training, lower train.tokens_per_batch or '
     'decode.batch_size, or raise optimizer.accumulate; in eval.py, lower --batch_size or '
     '--beam_size'),
])
def test_errors_that_are_not_bugs_end_without_a_traceback(raised, status, line):
  code = ('from transformer.system import command_line\nfrom transformer.errors import UserError\n'
          f'def main(_):\n  raise {raised}\ncommand_line.run(main)')
  done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, text=True, capture_output=True)
  assert (done.returncode, done.stdout, done.stderr.strip()) == (status, '', line)


def test_several_errors_at_a_time_print_one_line():
  code = '''
import asyncio
from transformer.system import command_line
from transformer.errors import UserError
async def fails():
  raise OSError('File too large')
def main(_):
  async def several():
    left = [asyncio.gather(fails(), fails()) for _ in range(3)]
    await asyncio.sleep(0.01)
  asyncio.run(several())
  raise UserError('no')
command_line.run(main)'''
  done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, text=True, capture_output=True)
  assert (done.returncode, done.stderr) == (1, 'error: no\n')


def test_the_last_printed_line_arrives():
  code = ('from transformer.system import command_line\ndef main(_):\n  print("here")\n'
          'command_line.run(main)')
  buffered = {name: value for name, value in os.environ.items() if name != 'PYTHONUNBUFFERED'}
  done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, text=True, capture_output=True,
                        env=buffered)
  assert (done.returncode, done.stdout, done.stderr) == (0, 'here\n', '')


@pytest.mark.parametrize('flags', [['--help'], ['--lines=1'], ['--lines=100000']])
def test_a_closed_pipe_is_no_error(flags):
  code = ('from absl import flags\nfrom transformer.system import command_line\n'
          'lines = flags.DEFINE_integer("lines", 0, "How many to print.")\n'
          'def main(_):\n  print(*range(lines.value), sep="\\n")\ncommand_line.run(main)')
  read, write = os.pipe()
  os.close(read)
  done = subprocess.run([sys.executable, '-c', code, *flags], cwd=ROOT, text=True, stdout=write,
                        stderr=subprocess.PIPE)
  os.close(write)
  assert (done.returncode, done.stderr) == (0, '')


def test_a_bug_keeps_its_traceback():
  code = ('from transformer.system import command_line\ndef main(_):\n  raise RuntimeError("why")\n'
          'command_line.run(main)')
  done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, text=True, capture_output=True)
  assert done.returncode == 1 and 'Traceback' in done.stderr and 'why' in done.stderr
