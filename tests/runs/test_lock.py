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


def holder_of(workdir):
  return json.loads((workdir / LOCK).read_bytes())['process']


def wait_for(happened):
  deadline = time.monotonic() + 10
  while not happened():
    assert time.monotonic() < deadline
    time.sleep(0.01)


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
      assert holder_of(tmp_path) == os.getpid()
    assert time.monotonic() - began < 60
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('content', [None, b'{"host": "el'])
def test_a_lock_of_another_machine_holds_until_its_heartbeat_expires(tmp_path, fast, content):
  began = time.monotonic()
  path = leave(tmp_path, machine='another', host='elsewhere')
  if content is not None:
    path.write_bytes(content)
  with RunLock(tmp_path):
    assert 0.9 < time.monotonic() - began < 60
  leave(tmp_path, machine='another', host='elsewhere')
  os.utime(path, (time.time() + 100,) * 2)  # The clock was set back.
  with RunLock(tmp_path):
    assert 1.9 < time.monotonic() - began < 60


def test_a_lock_of_another_machine_without_heartbeat_for_long_is_taken_at_once(tmp_path):
  os.utime(leave(tmp_path, machine='another'), (time.time() - 1000,) * 2)
  began = time.monotonic()
  with RunLock(tmp_path):
    assert time.monotonic() - began < 60


def test_a_heartbeat_of_another_machine_refuses_a_second_run(tmp_path):
  path = leave(tmp_path, machine='another', host='elsewhere', process=17)
  os.utime(path, (time.time() - 100,) * 2)  # The other machine's clock may be slow.
  with (beating(path), pytest.raises(UserError, match='in use by process 17 on host elsewhere'),
        RunLock(tmp_path)):
    pass


def test_where_files_cannot_be_locked_the_heartbeat_decides(tmp_path, fast, monkeypatch):
  def refuse(*_):
    raise OSError('Function not implemented')

  monkeypatch.setattr(lock.fcntl, 'flock', refuse)
  with RunLock(tmp_path), pytest.raises(UserError, match='in use'), RunLock(tmp_path):
    pass
  leave(tmp_path)
  with RunLock(tmp_path):
    assert holder_of(tmp_path) == os.getpid()


def test_a_holder_renews_its_heartbeat(tmp_path, fast):
  with RunLock(tmp_path):
    os.utime(tmp_path / LOCK, (1, 1))
    wait_for(lambda: (tmp_path / LOCK).stat().st_mtime > time.time() - 60)


def test_a_holder_that_has_lost_the_lock_ends_and_does_not_remove_it(
    tmp_path, fast, monkeypatch, capsys):
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
  for attempt in range(20):
    workdir = tmp_path / str(attempt)
    workdir.mkdir()
    leave(workdir)
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
