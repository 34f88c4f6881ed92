"""Timing of several systems, each in a separate process, in turns.

Separate processes isolate threads, allocators and compiled programs. Turns distribute the machine's
other load over all systems.
"""

import contextlib
import importlib
import importlib.metadata
import multiprocessing
import os
import platform
import resource
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class System(NamedTuple):
  """A system to measure.

  Attributes:
    name: its row in the table.
    module: the module of `build`, imported only in the system's process.
    build: name of a function that takes `arguments` and returns the function to time. That
      function returns a dict of notes about the run, or None.
    arguments: plain values.
  """

  name: str
  module: str
  build: str
  arguments: tuple = ()


class Measured(NamedTuple):
  """The measurements of a system.

  Attributes:
    seconds: wall-clock time of each run.
    cpu_seconds: CPU time of each run and of the commands it starts, over all cores.
    peak_bytes: peak memory of its process.
    notes: the dict of the last run.
  """

  seconds: list[float]
  cpu_seconds: list[float]
  peak_bytes: int
  notes: dict[str, Any]

  @property
  def median(self) -> float:
    """The median of `seconds`."""
    return statistics.median(self.seconds)


def time_in_turns(
  systems: Sequence[System], turns: int, runs: int
) -> tuple[dict[str, Measured], dict[str, str]]:
  """Times all systems in turns; only one runs at a time.

  Args:
    systems: the systems to measure.
    turns: number of turns of each system.
    runs: timed runs in a turn. An untimed run before them compiles and fills the caches.

  Returns:
    The measurements by name, and for each system that failed the reason, such as a package
    that is not installed.
  """
  # Spawned, so that each system starts in a new interpreter.
  context = multiprocessing.get_context('spawn')
  workers, answers, failed = {}, {}, {}
  for system in systems:
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, system), daemon=True)
    process.start()
    theirs.close()
    workers[system.name], answers[system.name] = (ours, process), []
  # The first request builds and compiles, one system after the other.
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
  return {
    name: Measured(
      [answer[0] for answer in given],
      [answer[1] for answer in given],
      given[-1][2],
      given[-1][3] or {},
    )
    for name, given in answers.items()
    if name not in failed
  }, failed


def make_command(source: str, output: str, *command: str):
  """Returns a function that runs a whole command, from `source` to `output`."""

  def run():
    with open(source, 'rb') as given, open(output, 'wb') as taken:
      done = subprocess.run(
        command, stdin=given, stdout=taken, stderr=subprocess.PIPE, check=False
      )
    if done.returncode:
      raise RuntimeError(done.stderr.decode(errors='replace').rstrip().split('\n')[-1])
    lines = Path(output).read_bytes().decode('utf-8').split('\n')[:-1]
    return {'sentences': len(lines), 'words': lines}

  return run


def machine(*packages: str) -> str:
  """Returns one line with the names of CPU and accelerator, and the versions of packages."""
  name = platform.machine()
  if os.path.exists('/proc/cpuinfo'):
    lines = Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines()
    name = next(
      (
        line.partition(':')[2].strip()
        for line in lines
        if line.startswith('model name')
      ),
      name,
    )
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
  """Returns this process's peak memory; `getrusage` would include its parent's."""
  lines = Path('/proc/self/status').read_text(encoding='utf-8').splitlines()
  return 1024 * int(next(line.split()[1] for line in lines if line.startswith('VmHWM')))


def _ask(pipe, count):
  """Returns the times of `count` runs of a worker, or the reason for its failure."""
  try:
    pipe.send(count)
    return pipe.recv()
  except (EOFError, OSError):
    return 'its process ended'


def _serve(pipe, system):
  """Answers requests in a system's process, until the pipe is closed."""
  # Several processes share an accelerator's memory.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  run = None
  while True:
    try:
      count = pipe.recv()
    except EOFError:
      return
    try:
      run = run or getattr(importlib.import_module(system.module), system.build)(
        *system.arguments
      )
      run()
      pipe.send([_timed(run) for _ in range(count)])
    except Exception as error:
      pipe.send(f'{type(error).__name__}: {" ".join(str(error).split())[:300]}')


def _timed(run):
  """Returns wall-clock seconds, CPU seconds, peak bytes and the notes of a run."""
  started, cpu = time.perf_counter(), _cpu_seconds()
  notes = run()
  return time.perf_counter() - started, _cpu_seconds() - cpu, peak_bytes(), notes


def _cpu_seconds():
  """Returns the CPU seconds of this process and of its finished children."""
  return sum(
    used.ru_utime + used.ru_stime
    for used in (
      resource.getrusage(who)
      for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
  )
