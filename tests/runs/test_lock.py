"""One run at a time in a directory, also after a process died there."""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from transformer.errors import UserError
from transformer.runs import lock
from transformer.runs.lock import LOCK, run_lock

ROOT = Path(__file__).parents[2]


def test_a_second_run_is_rejected_with_host_and_process_and_the_first_continues(
  tmp_path,
):
  with run_lock(tmp_path):
    before = (tmp_path / LOCK).read_bytes()
    with pytest.raises(UserError) as rejected, run_lock(tmp_path):
      pass
    assert (
      f'{tmp_path} is in use by process {os.getpid()} on host {socket.gethostname()}'
      in str(rejected.value)
    )
    assert (tmp_path / LOCK).read_bytes() == before
  assert os.listdir(tmp_path) == []


def test_a_released_lock_leaves_only_the_files_of_others(tmp_path):
  for mine in ([], ['mine']):
    with contextlib.suppress(ZeroDivisionError), run_lock(tmp_path / 'a' / 'b'):
      for name in mine:
        (tmp_path / 'a' / 'b' / name).touch()
      raise ZeroDivisionError
    assert [path.name for path in tmp_path.rglob('*')] == (
      ['a', 'b', *mine] if mine else []
    )


def test_the_lock_of_a_killed_process_is_taken_over_at_once(tmp_path):
  code = (
    'import pathlib, sys, time\nfrom transformer.runs.lock import run_lock\n'
    'lock = run_lock(pathlib.Path(sys.argv[1]))\nlock.__enter__()\n'
    'print(flush=True)\ntime.sleep(100)'
  )
  with subprocess.Popen(
    [sys.executable, '-c', code, tmp_path], cwd=ROOT, stdout=subprocess.PIPE
  ) as process:
    process.stdout.readline()
    with (
      pytest.raises(UserError, match=f'in use by process {process.pid} on'),
      run_lock(tmp_path),
    ):
      pass
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # It is a zombie.
    began = time.monotonic()
    with run_lock(tmp_path):
      assert time.monotonic() - began < 60
  assert os.listdir(tmp_path) == []


def test_if_files_cannot_be_locked_the_run_continues_with_a_warning(
  tmp_path, monkeypatch, caplog
):
  def reject(*_):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

  monkeypatch.setattr(lock.fcntl, 'flock', reject)
  with run_lock(tmp_path):
    assert 'cannot be locked: Function not implemented' in caplog.text


def test_one_of_many_processes_takes_over_a_dead_lock(tmp_path):
  for attempt in range(5):
    workdir = tmp_path / str(attempt)
    workdir.mkdir()
    (workdir / LOCK).write_text('{"host": "a dead run\'s"}')
    ready, done = threading.Barrier(6), threading.Barrier(6)

    def takes_over(_, workdir=workdir, ready=ready, done=done):
      ready.wait()
      try:
        with run_lock(workdir):
          done.wait()
          return True
      except UserError:
        done.wait()
        return False

    with ThreadPoolExecutor(6) as pool:
      assert sum(pool.map(takes_over, range(6))) == 1
