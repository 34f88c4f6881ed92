"""A command that runs as a child of another, and is asked to stop when that is."""

import signal
import subprocess
from collections.abc import Sequence

from transformer.errors import Preempted
from transformer.training.preemption import EXIT_STATUS, SIGNALS


def run(command: Sequence[str], **options) -> int:
  """Runs a command to its end, and passes on to it the signals that ask this process to stop.

  The child is in a session of its own, so that Ctrl-C, which a terminal sends to all
  that run in it, reaches it once.

  Args:
    command: what to run.
    **options: of `subprocess.Popen`.

  Returns:
    Its exit status.

  Raises:
    Preempted: it was asked to stop, and did.
  """
  asked: list[str] = []
  with subprocess.Popen(command, start_new_session=True, **options) as child:
    def pass_on(number, frame):
      del frame
      asked.append(signal.Signals(number).name)
      child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in SIGNALS}
    try:
      status = child.wait()
    finally:
      for number, handler in before.items():
        signal.signal(number, handler)
  if asked or status == EXIT_STATUS:
    why = f'stopped by {asked[0]}' if asked else 'what it ran was stopped'
    raise Preempted(f'{why}; the same command goes on from there')
  return status
