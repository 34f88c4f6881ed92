"""One run at a time in a directory, also after a process died there."""

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from transformer.errors import UserError
from transformer.runs import lock
from transformer.runs.lock import LOCK, RunLock

ROOT = Path(__file__).parents[2]


def fast(workdir, **options):
  """Returns a lock with times so short that a test can wait for them."""
  return RunLock(workdir, **{'beat_seconds': 0.05, 'expires_seconds': 1.0, **options})


def leave(workdir, **changes):
  """Writes the lock of this process, with some changes, and returns its path."""
  with RunLock(workdir):
    holder = json.loads((workdir / LOCK).read_bytes())
  path = workdir / LOCK
  path.write_text(json.dumps({**holder, **changes}))
  return path


@contextlib.contextmanager
def beating(path):
  """Renews the time of a file again and again, as its holder does."""
  stop = threading.Event()
  def beat():
    while not stop.wait(0.2):
      os.utime(path)
  thread = threading.Thread(target=beat)
  thread.start()
  try:
    yield
  finally:
    stop.set()
    thread.join()


def test_a_second_run_is_refused_with_host_and_process_and_the_first_goes_on(tmp_path):
  with RunLock(tmp_path):
    before = (tmp_path / LOCK).read_bytes()
    with pytest.raises(UserError) as refused, RunLock(tmp_path):
      pass
    assert f'{tmp_path} is in use by process {os.getpid()} on host {socket.gethostname()}' in str(
        refused.value)
    assert (tmp_path / LOCK).read_bytes() == before
  assert os.listdir(tmp_path) == []


def test_a_released_lock_leaves_only_the_files_of_others(tmp_path):
  with pytest.raises(ZeroDivisionError), RunLock(tmp_path / 'a' / 'b'):
    assert os.listdir(tmp_path / 'a' / 'b') == [LOCK]
    raise ZeroDivisionError
  assert os.listdir(tmp_path) == []
  with RunLock(tmp_path / 'a' / 'b'):
    (tmp_path / 'a' / 'b' / 'mine').touch()
  assert os.listdir(tmp_path / 'a' / 'b') == ['mine']


def test_the_lock_of_a_killed_process_is_taken_over_at_once(tmp_path):
  code = ('import sys, time\nfrom transformer.runs.lock import RunLock\n'
          'RunLock(sys.argv[1]).__enter__()\nprint(flush=True)\ntime.sleep(100)')
  with subprocess.Popen([sys.executable, '-c', code, tmp_path], cwd=ROOT,
                        stdout=subprocess.PIPE) as process:
    process.stdout.readline()
    with pytest.raises(UserError, match=f'in use by process {process.pid} on'), RunLock(tmp_path):
      pass
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # It is a zombie.
    began = time.monotonic()
    with RunLock(tmp_path):
      assert json.loads((tmp_path / LOCK).read_bytes())['process'] == os.getpid()
    assert time.monotonic() - began < 60
  assert os.listdir(tmp_path) == []


def test_a_process_of_another_user_that_proc_hides_holds_until_its_heartbeat_expires(
    tmp_path, monkeypatch):
  def refuse(process, number):
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
  path = leave(tmp_path, process=1)
  began = lock._began
  monkeypatch.setattr(lock, '_began', lambda process: None if process == 1 else began(process))
  monkeypatch.setattr(lock.os, 'kill', refuse)
  with (beating(path), pytest.raises(UserError, match='in use by process 1 on'),
        fast(tmp_path, expires_seconds=60.0)):
    pass
  with fast(tmp_path):
    assert json.loads(path.read_bytes())['process'] == os.getpid()


def test_a_later_process_with_the_same_number_does_not_hold_the_lock(tmp_path):
  path = leave(tmp_path, began=1)
  with RunLock(tmp_path):
    assert json.loads(path.read_bytes())['began'] != 1
  leave(tmp_path)
  with pytest.raises(UserError, match='in use'), RunLock(tmp_path):
    pass


@pytest.mark.parametrize('content', [None, b'', b'{"host": "el', b'[]', b'{"host": "else"}'])
def test_a_lock_of_another_machine_holds_until_its_heartbeat_expires(tmp_path, content):
  began = time.monotonic()
  path = leave(tmp_path, machine='another', host='elsewhere')
  if content is not None:
    path.write_bytes(content)
  with fast(tmp_path):
    assert 0.9 < time.monotonic() - began < 60
  leave(tmp_path, machine='another', host='elsewhere')
  os.utime(path, (time.time() - 1000,) * 2)
  with RunLock(tmp_path):
    assert time.monotonic() - began < 60
  leave(tmp_path, machine='another', host='elsewhere')
  os.utime(path, (time.time() + 100,) * 2)  # The clock was set back.
  with fast(tmp_path, expires_seconds=0.1):
    assert time.monotonic() - began < 60


def test_a_heartbeat_of_another_machine_refuses_a_second_run(tmp_path):
  path = leave(tmp_path, machine='another', host='elsewhere', process=17)
  os.utime(path, (time.time() - 100,) * 2)  # The other machine's clock may be slow.
  with (beating(path), pytest.raises(UserError, match='in use by process 17 on host elsewhere'),
        fast(tmp_path, expires_seconds=110.0)):
    pass


def test_a_holder_renews_its_heartbeat(tmp_path):
  with fast(tmp_path):
    os.utime(tmp_path / LOCK, (1, 1))
    deadline = time.monotonic() + 10
    while (tmp_path / LOCK).stat().st_mtime < time.time() - 60:
      assert time.monotonic() < deadline
      time.sleep(0.01)


def test_a_deleted_lock_is_written_again(tmp_path):
  with fast(tmp_path):
    (tmp_path / LOCK).unlink()
    deadline = time.monotonic() + 10
    while not (tmp_path / LOCK).exists():
      assert time.monotonic() < deadline
      time.sleep(0.01)
  assert os.listdir(tmp_path) == []


def test_a_holder_that_has_lost_the_lock_is_told_and_does_not_remove_it(tmp_path):
  told = []
  with fast(tmp_path, lost=told.append):
    theirs = leave_over(tmp_path, process=17, host='elsewhere')
    deadline = time.monotonic() + 10
    while not told:
      assert time.monotonic() < deadline
      time.sleep(0.01)
  assert 'was taken over by process 17 on host elsewhere' in told[0]
  assert (tmp_path / LOCK).read_bytes() == theirs


def leave_over(workdir, **changes):
  """Replaces a held lock by that of another process; returns its content."""
  holder = json.loads((workdir / LOCK).read_bytes())
  content = json.dumps({**holder, **changes}).encode()
  (workdir / 'theirs').write_bytes(content)
  os.replace(workdir / 'theirs', workdir / LOCK)
  return content


def test_one_of_many_processes_takes_over_a_dead_lock(tmp_path, monkeypatch):
  began = lock._began

  def slow(process):
    found = began(process)
    time.sleep(0.002 * (threading.get_ident() % 7))  # All threads find the holder dead.
    return found

  monkeypatch.setattr(lock, '_began', slow)
  for attempt in range(20):
    workdir = tmp_path / str(attempt)
    workdir.mkdir()
    leave(workdir, began=1)
    ready, done, got = threading.Barrier(6), threading.Barrier(6), []

    def start(workdir=workdir, ready=ready, done=done, got=got):
      ready.wait()
      try:
        with RunLock(workdir):
          got.append(True)
          done.wait()
      except UserError:
        done.wait()

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    assert got == [True]
