"""Signals stop a process in time, even if its main thread is busy outside of Python."""

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from transformer.system.signals import EXIT_STATUS, SIGNALS, Signals

pytestmark = pytest.mark.usefixtures('default_signal_handlers')
ROOT = Path(__file__).parents[2]
# Keeps the main thread busy for ever without an instruction of Python.
BUSY = """
import hashlib, sys, threading
from transformer.system.signals import Signals
with Signals(float(sys.argv[1])) as signals:
  {before}
  threading.Timer(0.2, print, kwargs={{'flush': True}}).start()
  hashlib.pbkdf2_hmac('sha256', b'', b'', 2 ** 31 - 1)
"""


def test_former_handlers_are_restored():
  before = [signal.getsignal(number) for number in SIGNALS]
  with Signals():
    assert [signal.getsignal(number) for number in SIGNALS] != before
  assert [signal.getsignal(number) for number in SIGNALS] == before
  assert signal.set_wakeup_fd(-1) == -1


@contextlib.contextmanager
def busy(before, grace):
  """Yields a process that is busy for ever in a context of signals."""
  with subprocess.Popen(
    [sys.executable, '-c', BUSY.format(before=before), str(grace)],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  ) as process:
    process.stdout.readline()
    try:
      yield process
    finally:
      process.kill()


def test_a_closed_standard_error_does_not_delay_the_end():
  """As in `train.py 2>&1 | tee log`, where Ctrl-C ends `tee` too."""
  with busy('pass', 0.5) as process:
    process.stderr.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == EXIT_STATUS


def end_of(before, grace, signals, pause, unheard=0):
  """Returns the status and the standard error of a busy process that gets signals."""
  with busy(before, grace) as process:
    process.send_signal(unheard)
    time.sleep(0.1)  # Of several signals at once, the last may be seen first.
    err = ''
    for number in signals:
      process.send_signal(number)
      err = err or process.stderr.readline()  # It has seen the first one.
      time.sleep(pause)
    process.wait(timeout=60)
    return process.returncode, err + process.stderr.read()


def test_a_signal_that_comes_twice_at_once_counts_once():
  """As where a service manager signals a group, and a launcher in it passes the signal on."""
  longer = 'import transformer.system.signals as module; module.TWICE_SECONDS = 20.0'
  status, err = end_of(
    longer, 1.0, (signal.SIGTERM, signal.SIGTERM, signal.SIGINT), pause=0.05
  )
  assert status == EXIT_STATUS and 'exceeded train.grace_seconds' in err
  assert 'second signal, ' not in err


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGHUP])
def test_a_process_in_the_background_is_not_stopped_by_a_terminal_but_by_a_scheduler(
  number,
):
  """As `&` in a script and `nohup` start it: Ctrl-C there is meant for another process."""
  signal.signal(number, signal.SIG_IGN)
  status, err = end_of('pass', 0.3, [signal.SIGTERM], pause=0.6, unheard=number)
  assert status == EXIT_STATUS and err.startswith('SIGTERM: the run stops, ')
  assert number.name not in err and signal.getsignal(number) == signal.SIG_IGN


@pytest.mark.parametrize(
  ('before', 'grace', 'signals', 'said'),
  [
    (
      'signals.defer()',
      0.3,
      [signal.SIGTERM],
      'exceeded train.grace_seconds=0.3',
    ),
    (
      'pass',
      1000,
      [signal.SIGUSR1, signal.SIGINT],
      'stopped at once by a second signal, SIGINT',
    ),
  ],
)
def test_the_grace_period_and_a_second_signal_end_a_busy_process(
  before, grace, signals, said
):
  status, err = end_of(before, grace, signals, pause=0.6)
  assert status == EXIT_STATUS == 75
  first, last = err.splitlines()
  does = 'stops' if before == 'pass' else 'saves a checkpoint and stops'
  assert first == (
    f'{signals[0].name}: the run {does}, within {grace:g} seconds; a second signal stops it at once'
  )
  assert said in last
