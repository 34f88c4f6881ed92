"""Systems side by side: each in a process of its own, all taking turns.

A process each keeps one system's threads, allocator and compiled programs out of
the others' way; turns spread what else the machine does over all of them.
"""

import contextlib
import importlib
import importlib.metadata
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class System(NamedTuple):
  """What is measured.

  Attributes:
    name: its row in the table.
    module: where its `build` is; imported in the system's own process alone, so
      that no other needs its packages.
    build: name of a function that is called with `arguments` there and returns
      the function to time, which returns a dict of what else there is to say of
      the run, or None.
    arguments: plain values.
  """

  name: str
  module: str
  build: str
  arguments: tuple = ()


class Measured(NamedTuple):
  """What came of a system.

  Attributes:
    seconds: wall-clock time of each run.
    cpu_seconds: processor time of each run, over all cores.
    peak_bytes: the most memory that its process has held.
    notes: what the last run returned.
  """

  seconds: list[float]
  cpu_seconds: list[float]
  peak_bytes: int
  notes: dict[str, Any]

  @property
  def median(self) -> float:
    """The median of `seconds`."""
    return statistics.median(self.seconds)


def take_turns(systems: Sequence[System], turns: int, runs: int
               ) -> tuple[dict[str, Measured], dict[str, str]]:
  """Lets every system run by itself for a while, in turns.

  Args:
    systems: what to measure.
    turns: how often each comes round.
    runs: timed runs in a turn, after one that is not timed: what compiles, and
      what has left the caches while the others ran, is not what is measured.

  Returns:
    What was measured, and the reason for every system that could not be: a
    package that is not installed, say.
  """
  # Not forked: every system starts as a command of its own would.
  context = multiprocessing.get_context('spawn')
  workers, answers, failed = {}, {}, {}
  for system in systems:
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, system), daemon=True)
    process.start()
    theirs.close()
    workers[system.name], answers[system.name] = (ours, process), []
  # The first question builds and compiles, one system after the other.
  for count in [0, *[runs] * turns]:
    for name, (pipe, _) in workers.items():
      if name not in failed:
        answer = _ask(pipe, count)
        if isinstance(answer, str):
          failed[name] = answer
        else:
          answers[name] += answer
  for pipe, process in workers.values():
    pipe.close()
    process.join()
  return {name: Measured([each[0] for each in given], [each[1] for each in given],
                         given[-1][2], given[-1][3] or {})
          for name, given in answers.items() if name not in failed}, failed


def make_command(source: str, output: str, *arguments: str):
  """A Python command from start to end, from standard input to standard output."""
  def run():
    with open(source, 'rb') as given, open(output, 'wb') as taken:
      subprocess.run([sys.executable, *arguments], stdin=given, stdout=taken,
                     stderr=subprocess.DEVNULL, check=True)
    lines = Path(output).read_text(encoding='utf-8').splitlines()
    return {'sentences': len(lines), 'words': lines}

  return run


def machine(*packages: str) -> str:
  """Names the processor, the accelerator if JAX has one, and the versions of some packages."""
  name = platform.machine()
  if os.path.exists('/proc/cpuinfo'):
    lines = Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines()
    name = next((line.partition(':')[2].strip() for line in lines
                 if line.startswith('model name')), name)
  where = f'{len(os.sched_getaffinity(0))} cores of {name}'
  if 'jax' in packages:
    import jax
    if jax.default_backend() != 'cpu':
      where = f'{jax.devices()[0].device_kind}; {where}'
  versions = [f'Python {platform.python_version()}']
  for package in packages:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      versions.append(f'{package} {importlib.metadata.version(package)}')
  return f'{where}; {", ".join(versions)}'


def peak_bytes() -> int:
  """The most memory that this process has held; `getrusage` would count its parent's too."""
  lines = Path('/proc/self/status').read_text(encoding='utf-8').splitlines()
  return 1024 * int(next(line.split()[1] for line in lines if line.startswith('VmHWM')))


def _ask(pipe, count):
  """The times of `count` runs of a worker, or why it has none."""
  try:
    pipe.send(count)
    return pipe.recv()
  except (EOFError, OSError):
    return 'its process ended'


def _serve(pipe, system):
  """A system's own process: answers until nobody asks any more."""
  # Several processes share an accelerator's memory.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  run = None
  while True:
    try:
      count = pipe.recv()
    except EOFError:
      return
    try:
      run = run or getattr(importlib.import_module(system.module), system.build)(*system.arguments)
      run()
      pipe.send([_timed(run) for _ in range(count)])
    except Exception as error:
      pipe.send(f'{type(error).__name__}: {" ".join(str(error).split())[:300]}')


def _timed(run):
  """Wall-clock seconds, processor seconds, peak bytes, and what the run says of itself."""
  started, cpu = time.perf_counter(), time.process_time()
  notes = run()
  seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
  return seconds, cpu, peak_bytes(), notes
