"""One run at a time in a directory, also after a process died there."""

import contextlib
import json
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
from transformer.runs.lock import LOCK, RunLock

ROOT = Path(__file__).parents[2]


@pytest.fixture
def fast(monkeypatch):
  """Makes the times so short that a test can wait for them."""
  monkeypatch.setattr(lock, '_BEAT_SECONDS', 0.05)
  monkeypatch.setattr(lock, '_EXPIRES_SECONDS', 1.0)


def leave(workdir, **changes):
  """Writes the lock of this process, with some changes, and returns its path."""
  with RunLock(workdir):
    holder = json.loads((workdir / LOCK).read_bytes())
  path = workdir / LOCK
  path.write_text(json.dumps({**holder, **changes}))
  return path


def test_a_second_run_is_refused_with_host_and_process_and_the_first_goes_on(tmp_path, fast):
  with RunLock(tmp_path):
    os.utime(tmp_path / LOCK, (1, 1))
    before = (tmp_path / LOCK).read_bytes()
    with pytest.raises(UserError) as refused, RunLock(tmp_path):
      pass
    assert f'{tmp_path} is in use by process {os.getpid()} on host {socket.gethostname()}' in str(
      refused.value
    )
    assert (tmp_path / LOCK).read_bytes() == before
    time.sleep(0.5)
    assert (tmp_path / LOCK).stat().st_mtime > time.time() - 60  # It renews its heartbeat.
  assert os.listdir(tmp_path) == []


def test_a_released_lock_leaves_only_the_files_of_others(tmp_path):
  for mine in ([], ['mine']):
    with contextlib.suppress(ZeroDivisionError), RunLock(tmp_path / 'a' / 'b'):
      for name in mine:
        (tmp_path / 'a' / 'b' / name).touch()
      raise ZeroDivisionError
    assert [path.name for path in tmp_path.rglob('*')] == (['a', 'b', *mine] if mine else [])


def test_the_lock_of_a_killed_process_is_taken_over_at_once(tmp_path):
  code = (
    'import sys, time\nfrom transformer.runs.lock import RunLock\n'
    'RunLock(sys.argv[1]).__enter__()\nprint(flush=True)\ntime.sleep(100)'
  )
  with subprocess.Popen(
    [sys.executable, '-c', code, tmp_path], cwd=ROOT, stdout=subprocess.PIPE
  ) as process:
    process.stdout.readline()
    with pytest.raises(UserError, match=f'in use by process {process.pid} on'), RunLock(tmp_path):
      pass
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # It is a zombie.
    began = time.monotonic()
    with RunLock(tmp_path):
      assert time.monotonic() - began < 60
  assert os.listdir(tmp_path) == []


def test_a_lock_of_another_machine_holds_until_its_heartbeat_expires(tmp_path, fast):
  began = time.monotonic()
  path = leave(tmp_path, machine='another', host='elsewhere')
  path.write_bytes(b'{"host": "el')  # It is being written.
  with RunLock(tmp_path):
    assert 0.9 < time.monotonic() - began < 60
  leave(tmp_path, machine='another', host='elsewhere')
  os.utime(path, (time.time() + 100,) * 2)  # The clock was set back.
  with RunLock(tmp_path):
    assert 1.9 < time.monotonic() - began < 60


def test_a_heartbeat_of_another_machine_refuses_a_second_run(tmp_path):
  path = leave(tmp_path, machine='another', host='elsewhere', process=17)
  os.utime(path, (time.time() - 100,) * 2)  # The other machine's clock may be slow.
  beat = threading.Timer(0.5, os.utime, [path])
  beat.start()
  with pytest.raises(UserError, match='in use by process 17 on host elsewhere'), RunLock(tmp_path):
    pass
  beat.join()


def test_where_files_cannot_be_locked_the_heartbeat_decides(tmp_path, fast, monkeypatch):
  def refuse(*_):
    raise OSError('Function not implemented')

  monkeypatch.setattr(lock.fcntl, 'flock', refuse)
  with RunLock(tmp_path), pytest.raises(UserError, match='in use'), RunLock(tmp_path):
    pass
  leave(tmp_path)
  with RunLock(tmp_path):  # Its holder is dead.
    pass


def test_a_holder_that_has_lost_the_lock_ends_and_does_not_remove_it(
  tmp_path, fast, monkeypatch, capsys
):
  ended = threading.Event()

  def end(status):
    assert status == 1
    ended.set()
    raise OSError  # In place of the end of the process.

  monkeypatch.setattr(lock.os, '_exit', end)
  with RunLock(tmp_path):
    theirs = json.dumps({'process': 17, 'host': 'elsewhere'}).encode()
    (tmp_path / 'theirs').write_bytes(theirs)
    os.replace(tmp_path / 'theirs', tmp_path / LOCK)
    assert ended.wait(10)
  assert 'was taken over by process 17 on host elsewhere' in capsys.readouterr().err
  assert (tmp_path / LOCK).read_bytes() == theirs


def test_one_of_many_processes_takes_over_a_dead_lock(tmp_path):
  for attempt in range(5):
    workdir = tmp_path / str(attempt)
    workdir.mkdir()
    leave(workdir)
    ready, done = threading.Barrier(6), threading.Barrier(6)

    def takes_over(_, workdir=workdir, ready=ready, done=done):
      ready.wait()
      try:
        with RunLock(workdir):
          done.wait()
          return True
      except UserError:
        done.wait()
        return False

    with ThreadPoolExecutor(6) as pool:
      assert sum(pool.map(takes_over, range(6))) == 1
