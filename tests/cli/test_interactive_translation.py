"""A pipe is answered line by line, and a terminal by a prompt."""

import contextlib
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_fixtures import ENGLISH
from transformer.cli import text_lines
from transformer.decoding.config import resolve_decode_options
from transformer.trained_run import load

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_a_pipe_is_answered_line_by_line_and_a_terminal_with_a_prompt(
  default_signal_handlers, evaluate, folder, trained, tmp_path
):
  shutil.copytree(trained, tmp_path / 'run')
  command = [
    sys.executable,
    'eval.py',
    f'--workdir={tmp_path}/run',
    '--source=-',
    '--batch_size=1',
  ]
  environment = {
    **{name: value for name, value in os.environ.items() if 'DISPLAY' not in name},
    'JAX_PLATFORMS': 'cpu',
    'TERM': 'dumb',
  }
  _, whole, _ = evaluate(f'--workdir={trained}', f'--source={folder}/test.en')
  lines = (folder / 'test.en').read_bytes().splitlines(keepends=True)
  with subprocess.Popen(
    command,
    cwd=ROOT,
    env=environment,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
  ) as process:
    for line, wanted in zip(lines, whole.splitlines(), strict=True):
      process.stdin.write(line)
      process.stdin.flush()
      assert process.stdout.readline().decode() == f'{wanted}\n'
    process.send_signal(signal.SIGINT)  # While it waits for more.
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130 and out == b'' and err.endswith(b'interrupted\n')

  ours, theirs = pty.openpty()
  with subprocess.Popen(
    command,
    cwd=ROOT,
    env=environment,
    stdin=theirs,
    stdout=theirs,
    stderr=subprocess.PIPE,
  ) as process:
    os.close(theirs)
    typed = iter((*lines, b'\xff\n', b'\x04'))
    said = b''
    with contextlib.suppress(
      OSError
    ):  # A terminal raises this when the other side is gone.
      while select.select([ours], [], [], 100)[0]:
        said += os.read(ours, 4096)
        if said.endswith(b'> '):
          os.write(ours, next(typed))
    assert process.wait(100) == 0, process.stderr.read()
  os.close(ours)
  said = said.decode(errors='replace')  # A terminal echoes its input.
  assert all(line in said for line in whole.split('\n')) and 'Ctrl-D ends' in said


@pytest.mark.long
def test_a_pipe_gets_what_a_file_gets(evaluate, trained, tmp_path, capfdbinary):
  """More lines than are translated together: samples and lists depend on the line numbers."""
  (tmp_path / 'in').write_text(
    ''.join(f'{source}\n' for source in ENGLISH * 40), 'utf-8'
  )
  status, _, err = evaluate(
    f'--workdir={trained}',
    f'--source={tmp_path}/in',
    f'--output={tmp_path}/out',
    '--sample',
    '--beam_size=2',
    '--nbest=2',
  )
  assert status == 0, err
  run = load(trained)
  decoding = resolve_decode_options(
    run.config.decode, run.config.seed, sample=True, beam_size=2, nbest=2
  )
  before = os.dup(0)
  try:
    with open(tmp_path / 'in', 'rb') as file:
      os.dup2(file.fileno(), 0)
    text_lines.translate_stdin(run, decoding)
  finally:
    os.dup2(before, 0)
    os.close(before)
  out = capfdbinary.readouterr().out
  assert (
    out == (tmp_path / 'out').read_bytes()
    and out.count(b'\n') > 2 * 16 * decoding.batch_size
  )
