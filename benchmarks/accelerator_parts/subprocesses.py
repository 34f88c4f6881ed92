"""Runs a section in a separate process, and stops it at its time limit."""

import contextlib
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from launch import child_process

_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'torch')
_LINE = 300  # maximum characters of an error


def measure(command: Sequence[str], seconds: float) -> dict[str, Any]:
  """Runs the command of a section.

  Args:
    command: a command line that takes `--rows=FILE` and appends rows to it with `write_rows`.
    seconds: the time limit, after which the command and its children are killed.

  Returns:
    `rows`, even if the command failed; `error`, a line or None; and `seconds`.
  """
  started = time.monotonic()
  with tempfile.TemporaryDirectory() as folder:
    rows, errors = Path(folder, 'rows'), Path(folder, 'errors')
    rows.touch()
    status = run([*command, f'--rows={rows}'], errors, seconds)
    error = None
    if status is None:
      error = f'it took longer than {seconds:.0f} s'
    elif status:
      error = f'status {status}: {last_line(errors)}'
    return {
      'rows': [json.loads(line) for line in rows.read_text('utf-8').splitlines()],
      'error': error,
      'seconds': round(time.monotonic() - started, 1),
    }


def run(
  command: Sequence[str], errors: Path, seconds: float, grace: float = 0.0
) -> int | None:
  """Runs a command, with its output and errors in a file.

  Args:
    command: the command line. It and its children end when this process ends.
    errors: the file.
    seconds: the time until the command is terminated.
    grace: the time from then until it is killed; without it, the command is killed immediately.

  Returns:
    Its exit status; None if it was killed.
  """
  with errors.open('wb') as file:
    process = child_process.start_child(
      [], [], command, stdin=subprocess.DEVNULL, stdout=file, stderr=file
    )
  try:
    with contextlib.suppress(subprocess.TimeoutExpired):
      return process.wait(seconds)
    if grace:
      process.terminate()
      with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(grace)
    return None
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def last_line(errors: Path) -> str:
  """Returns the last line of a file that is not blank."""
  lines = errors.read_text('utf-8', 'replace').split('\n')
  return next(
    (line.strip()[:_LINE] for line in reversed(lines) if line.strip()), 'no message'
  )


def write_rows(path: str | os.PathLike, rows: Iterable[dict[str, Any]]):
  """Appends each row to a file as soon as it is available."""
  with open(path, 'a', encoding='utf-8') as file:
    for row in rows:
      file.write(json.dumps(row) + '\n')
      file.flush()


def describe(commit: str) -> dict[str, str]:
  """Returns the machine, the versions, the commit and the time; uses no device."""
  name = platform.processor() or platform.machine()
  with contextlib.suppress(OSError):
    lines = Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines()
    name = next(
      (
        line.partition(':')[2].strip()
        for line in lines
        if line.startswith('model name')
      ),
      name,
    )
  card = 'no GPU'
  if shutil.which('nvidia-smi'):
    asked = subprocess.run(
      ['nvidia-smi', '--query-gpu=name,driver_version', '--format=csv,noheader'],
      capture_output=True,
      text=True,
      check=False,
    )
    card = ', driver '.join(asked.stdout.partition('\n')[0].split(', ')) or card
  versions = [f'Python {platform.python_version()}']
  for package in _PACKAGES:
    with contextlib.suppress(metadata.PackageNotFoundError):
      versions.append(f'{package} {metadata.version(package)}')
  return {
    'machine': f'{card}; {len(os.sched_getaffinity(0))} cores of {name}',
    'versions': ', '.join(versions),
    'commit': commit,
    'time': datetime.datetime.now(datetime.UTC).strftime('%Y-%m-%d %H:%M UTC'),
  }


def python(*arguments: str) -> list[str]:
  """Returns a command line that runs this interpreter."""
  return [sys.executable, *arguments]
