"""A child process gets each signal of its parent once, and the parent waits for its end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launch import child_process
from transformer.errors import StoppedBySignal
from transformer.system.signals import EXIT_STATUS, SIGNALS

ROOT = Path(__file__).parents[2]
# A child that ends a moment after the first signal, and prints all signals that it got.
CHILD = """
import signal, sys, time
got = []
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
  signal.signal(number, lambda number, frame: got.append(number))
print('ready', flush=True)
while not got:
  time.sleep(0.01)
time.sleep(0.3)
print(*got, flush=True)
sys.exit(75)
"""
PARENT = f"""
import sys
from transformer import errors
from launch import child_process
try:
  child_process.run([sys.executable, '-c', {CHILD!r}])
except errors.StoppedBySignal as stop:
  print(stop, flush=True)
"""


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_reaches_the_child_once_and_its_end_is_waited_for(
  default_signal_handlers, number
):
  with subprocess.Popen(
    [sys.executable, '-c', PARENT],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    text=True,
    start_new_session=True,
  ) as parent:
    try:
      assert parent.stdout.readline() == 'ready\n'
      # A terminal also sends Ctrl-C to the whole process group.
      os.killpg(parent.pid, number)
      out, _ = parent.communicate(timeout=30)
    finally:
      parent.kill()
  stopped = f'stopped by {number.name}; rerun the command to resume\n'
  # A parent that is killed says nothing, and its child is asked to stop.
  assert out == ('15\n' if number == signal.SIGKILL else f'{number.value}\n{stopped}')


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_signal_between_or_after_children_stops_the_command(
  default_signal_handlers, number
):
  before = [signal.getsignal(each) for each in SIGNALS]
  for child in (False, True):
    with (
      pytest.raises(
        StoppedBySignal, match=f'stopped by {number.name}; rerun the command'
      ),
      child_process.stop_on_signal(),
    ):
      if child:
        child_process.run([sys.executable, '-c', ''])
      os.kill(os.getpid(), number)
  assert [signal.getsignal(each) for each in SIGNALS] == before


def test_the_exit_status_is_returned_and_handlers_are_restored():
  before = [signal.getsignal(number) for number in SIGNALS]
  assert child_process.run([sys.executable, '-c', 'raise SystemExit(3)']) == 3
  assert [signal.getsignal(number) for number in SIGNALS] == before
  with pytest.raises(StoppedBySignal, match='command was stopped; rerun the command'):
    child_process.run([sys.executable, '-c', f'raise SystemExit({EXIT_STATUS})'])
