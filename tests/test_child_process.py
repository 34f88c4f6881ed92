"""A command that runs as a child is asked to stop when its parent is, once, and is waited for."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from transformer import child_process
from transformer.errors import Preempted
from transformer.training.preemption import EXIT_STATUS

ROOT = Path(__file__).parents[1]
# A child that takes a second over its end, and counts the signals that it gets.
CHILD = """
import signal, sys, time
got = []
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
  signal.signal(number, lambda number, frame: got.append(number))
print('ready', flush=True)
while not got:
  time.sleep(0.01)
time.sleep(1)
print(*got, flush=True)
sys.exit(75)
"""
PARENT = f"""
import sys
from transformer import child_process, errors
try:
  child_process.run([sys.executable, '-c', {CHILD!r}])
except errors.Preempted as stop:
  print(stop, flush=True)
"""


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_reaches_the_child_once_and_its_end_is_waited_for(number):
  with subprocess.Popen([sys.executable, '-c', PARENT], cwd=ROOT, stdout=subprocess.PIPE,
                        text=True, start_new_session=True) as parent:
    try:
      assert parent.stdout.readline() == 'ready\n'
      # As a terminal does with Ctrl-C: to all that run in it.
      os.killpg(parent.pid, number)
      out, _ = parent.communicate(timeout=30)
    finally:
      parent.kill()
  assert out == (f'{number.value}\nstopped by {number.name}; the same command goes on from '
                 f'there\n')


def test_a_status_is_handed_on_and_handlers_are_as_they_were():
  before = [signal.getsignal(number) for number in child_process.SIGNALS]
  assert child_process.run([sys.executable, '-c', 'raise SystemExit(3)']) == 3
  assert [signal.getsignal(number) for number in child_process.SIGNALS] == before


def test_a_child_that_was_stopped_stops_its_parent():
  with pytest.raises(Preempted, match='what it ran was stopped; the same command goes on from'):
    child_process.run([sys.executable, '-c', f'raise SystemExit({EXIT_STATUS})'])
