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

from transformer.inference.requirements import lacks_phrase

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_a_pipe_is_answered_line_by_line_and_a_terminal_with_a_prompt(
    evaluate, folder, trained, tmp_path):
  shutil.copytree(trained, tmp_path / 'run')
  # What a shell runs in its background, such as all of the tests, is deaf to Ctrl-C.
  hearing = ('import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); '
             'os.execv(sys.executable, [sys.executable, *sys.argv[1:]])')
  command = [sys.executable, '-c', hearing, 'eval.py', f'--workdir={tmp_path}/run', '--source=-']
  environment = {**{name: value for name, value in os.environ.items() if 'DISPLAY' not in name},
                 'JAX_PLATFORMS': 'cpu', 'TERM': 'dumb'}
  _, whole, _ = evaluate(f'--workdir={trained}', f'--source={folder}/test.en')
  lines = (folder / 'test.en').read_bytes().splitlines(keepends=True)
  with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
    for line, wanted in zip(lines, whole.splitlines(), strict=True):
      process.stdin.write(line)
      process.stdin.flush()
      assert process.stdout.readline().decode() == f'{wanted}\n'
    process.send_signal(signal.SIGINT)  # While it waits for more.
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130 and out == b'' and err.endswith(b'interrupted\n')

  ours, theirs = pty.openpty()
  with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs,
                        stderr=subprocess.PIPE) as process:
    os.close(theirs)
    typed = iter((lines[0], b':nbest 2\n', lines[1], b':attend\n',
                  b':require hund\n', lines[1], b':beam 0\n', b'\x04'))
    said = b''
    with contextlib.suppress(OSError):  # What a terminal gives when the other side is gone.
      while select.select([ours], [], [], 100)[0]:
        said += os.read(ours, 4096)
        if said.endswith(b'> '):
          os.write(ours, next(typed))
    assert process.wait(100) == 0, process.stderr.read()
  os.close(ours)
  said = said.decode()
  assert all(each in said for each in whole.split('\n')) and 'translate it, or :help' in said
  assert 'error: decode.beam_size must be at least 1; got 0' in said
  assert not lacks_phrase(said.rpartition(':require hund')[2], ['hund'])
  assert f'open {tmp_path}/run/eval/attention.html in a browser' in said
  assert b'<html' in (tmp_path / 'run' / 'eval' / 'attention.html').read_bytes()
