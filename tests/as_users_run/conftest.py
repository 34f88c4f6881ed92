"""Starts processes that are set up and compile as users' do, not as the other tests'."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope='session')
def environment(tmp_path_factory):
  """This process's, without what the tests tell JAX and XLA; what is compiled is kept with theirs.

  Programs that are compiled otherwise have other names there.
  """
  compiled = os.environ.get('JAX_COMPILATION_CACHE_DIR') or str(tmp_path_factory.mktemp('compiled'))
  others = {name: value for name, value in os.environ.items()
            if not name.startswith(('JAX_', 'XLA_'))}
  # Threads of NumPy's would spin beside XLA's.
  return {**others, 'JAX_PLATFORMS': 'cpu', 'JAX_COMPILATION_CACHE_DIR': compiled,
          'OPENBLAS_NUM_THREADS': '1'}


@pytest.fixture(scope='session')
def measure(environment, tmp_path_factory):
  """(subject, settings of JAX) -> what `child` prints of it."""
  def run(subject, **settings):
    done = subprocess.run(
        [sys.executable, '-m', 'tests.as_users_run.child', subject,
         str(tmp_path_factory.mktemp(subject))],
        cwd=ROOT, env={**environment, **settings}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)

  return run
