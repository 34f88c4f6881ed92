"""Times the same work under several installations of JAX and several XLA_FLAGS, in turns.

  python benchmarks/jax_versions.py .venv-a/bin/python .venv-b/bin/python \\
      '.venv-b/bin/python --xla_cpu_experimental_ynn_fusion_type=-reduce'

Each argument is a Python with this project's requirements, followed by its XLA flags. The work is
a training step of the tiny and of the base model, and a search with 4 beams with the base model.
An installation needs 3 GB of memory.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_WORK = ('training step, tiny', 'training step, base', 'beam 4, base')


class _Worker:
  """A process of another Python that runs work on request."""

  def __init__(self, command: str):
    python, *xla_flags = command.split()
    environment = {
      **os.environ,
      'XLA_FLAGS': ' '.join(xla_flags),
      'PYTHONPATH': os.pathsep.join([str(_ROOT), str(_ROOT / 'benchmarks')]),
    }
    try:
      self._process = subprocess.Popen(
        [python, __file__, '--serve'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
      )
    except OSError as error:
      sys.exit(f'{python} cannot be started: {error.strerror}; name a Python')
    self.name = ' '.join([self._answer(), *xla_flags])

  def seconds(self, work: str) -> tuple[float, float]:
    """Returns the wall-clock and CPU seconds of one run."""
    with contextlib.suppress(BrokenPipeError):  # `_answer` raises the error.
      self._process.stdin.write(f'{work}\n')
      self._process.stdin.flush()
    return tuple(json.loads(self._answer()))

  def close(self):
    """Ends the process."""
    self._process.stdin.close()
    self._process.wait()

  def _answer(self) -> str:
    line = self._process.stdout.readline()
    if not line:
      sys.exit(
        f'{" ".join(self._process.args)} ended with status {self._process.wait()}'
      )
    return line.strip()


def main():
  """Prints a table of medians."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('installations', nargs='*', metavar='PYTHON [XLA_FLAGS]')
  parser.add_argument('--turns', type=int, default=7, help='Timed runs of each.')
  parser.add_argument('--serve', action='store_true', help=argparse.SUPPRESS)
  arguments = parser.parse_args()
  if arguments.serve:
    _serve()
    return
  if not arguments.installations:
    parser.error('name at least one Python')
  workers = [_Worker(command) for command in arguments.installations]
  print('| work | JAX and flags | seconds | core-seconds |\n| --- | --- | --- | --- |')
  for work in _WORK:
    for worker in workers:
      worker.seconds(work)  # Compiles it.
    runs = [
      [worker.seconds(work) for worker in workers] for _ in range(arguments.turns)
    ]
    for worker, times in zip(workers, zip(*runs, strict=True), strict=True):
      seconds, cores = map(statistics.median, zip(*times, strict=True))
      print(f'| {work} | {worker.name} | {seconds:.3f} | {cores:.2f} |', flush=True)
  for worker in workers:
    worker.close()


def _serve():
  """Prints the seconds of each work item named on standard input."""
  import time

  import jax
  from this_project import make_decoding, make_training_step_benchmark
  from workload import DECODING, ON_A_CPU

  make = {
    'training step, tiny': lambda: make_training_step_benchmark(ON_A_CPU['tiny']),
    'training step, base': lambda: make_training_step_benchmark(ON_A_CPU['base']),
    'beam 4, base': lambda: make_decoding(DECODING, 4),
  }
  print(f'jax {jax.__version__}', flush=True)
  name, run = None, None
  for line in sys.stdin:
    if line.strip() != name:
      name, run = line.strip(), None  # Frees the memory of the previous work.
      run = make[name]()
      run()
    started, cpu = time.perf_counter(), time.process_time()
    run()
    print(
      json.dumps([time.perf_counter() - started, time.process_time() - cpu]), flush=True
    )


if __name__ == '__main__':
  main()
