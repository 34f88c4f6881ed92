"""Starts processes with the settings and the compilation of users' processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope='session')
def environment(tmp_path_factory):
  """Returns this process's environment, without the settings of JAX and XLA for tests.

  The cache of compiled programs is shared with the tests, whose programs have other keys.
  """
  compiled = os.environ.get('JAX_COMPILATION_CACHE_DIR') or str(
    tmp_path_factory.mktemp('compiled')
  )
  others = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(('JAX_', 'XLA_'))
  }
  # Busy NumPy threads would slow down XLA's threads.
  return {
    **others,
    'JAX_PLATFORMS': 'cpu',
    'JAX_COMPILATION_CACHE_DIR': compiled,
    'OPENBLAS_NUM_THREADS': '1',
  }


@pytest.fixture(scope='session')
def measure(environment, tmp_path_factory):
  """Returns a function (subject, **environment) -> the JSON that `child` prints."""

  def run(subject, **settings):
    done = subprocess.run(
      [
        sys.executable,
        '-m',
        'tests.full_size.child',
        subject,
        str(tmp_path_factory.mktemp(subject)),
      ],
      cwd=ROOT,
      env={**environment, **settings},
      capture_output=True,
      text=True,
      check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)

  return run
