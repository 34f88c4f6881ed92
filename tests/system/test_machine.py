"""The machine: freed memory that is used again, and programs that are kept for JAX."""

import io
import os
import subprocess
import sys

import pytest
from absl import logging

from transformer.system import machine


@pytest.fixture
def warnings(monkeypatch):
  """The warnings of a test."""
  lines = []
  monkeypatch.setattr(
    logging, 'warning', lambda text, *values: lines.append(text % values)
  )
  return lines


# Prints the page faults of writing to 64 MiB for the second time, and the peak memory in MiB.
_SCRIPT = """
import resource, sys
if 'keep' in sys.argv:
  from transformer.system import machine
  machine.keep_freed_memory()
def faults():
  before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  block = b'1' * (64 << 20)
  return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))
print(faults(), int(peak.split()[1]) // 1024)
"""


def faults_and_megabytes(*arguments):
  done = subprocess.run(
    [sys.executable, '-c', _SCRIPT, *arguments],
    capture_output=True,
    text=True,
    check=True,
  )
  return map(int, done.stdout.split())


@pytest.mark.skipif(not sys.platform.startswith('linux'), reason='glibc alone')
def test_freed_memory_costs_no_page_faults_and_keeping_it_takes_none():
  before, _ = faults_and_megabytes()
  after, megabytes = faults_and_megabytes('keep')
  assert after < before / 10
  assert megabytes < 256


def test_programs_go_to_a_private_folder_of_the_user(tmp_path):
  environment = {'XDG_CACHE_HOME': str(tmp_path / 'cache')}
  machine.enable_compilation_cache(environment)
  folder = environment['JAX_COMPILATION_CACHE_DIR']
  assert folder.startswith(str(tmp_path / 'cache'))
  assert os.stat(folder).st_mode & 0o777 == 0o700  # JAX runs the programs in it.
  assert environment['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] == '0'
  # What the user has set stays, an empty text too.
  environment = {
    'XDG_CACHE_HOME': str(tmp_path / 'no'),
    'JAX_COMPILATION_CACHE_DIR': '',
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '5',
    'TF_CPP_MIN_LOG_LEVEL': '0',
  }
  before = dict(environment)
  machine.enable_compilation_cache(environment)
  assert environment == before and not (tmp_path / 'no').exists()


@pytest.mark.parametrize('home', ['file/under', ''])
def test_an_unusable_folder_causes_a_warning_and_no_cache(
  tmp_path, monkeypatch, warnings, home
):
  (tmp_path / 'file').write_text('mine')
  monkeypatch.setenv('HOME', str(tmp_path / 'file'))
  environment = {'XDG_CACHE_HOME': home and str(tmp_path / home)}
  machine.enable_compilation_cache(environment)
  assert 'JAX_COMPILATION_CACHE_DIR' not in environment
  (warning,) = warnings
  assert (
    'file' in warning
    and 'set JAX_COMPILATION_CACHE_DIR to a different folder' in warning
  )


def test_processors_of_two_kinds_have_two_folders(tmp_path, monkeypatch):
  folders = set()
  for features in ('flags : sse avx', 'flags : sse', 'flags : sse'):
    monkeypatch.setattr(
      machine,
      'open',
      lambda *_, features=features, **__: io.StringIO(
        f'processor : 0\n{features}\nprocessor : 1\n'
      ),
      raising=False,
    )
    environment = {'XDG_CACHE_HOME': str(tmp_path)}
    machine.enable_compilation_cache(environment)
    folders.add(environment['JAX_COMPILATION_CACHE_DIR'])
  assert len(folders) == 2


@pytest.mark.long
def test_reproducible_flags_join_others_and_come_after_contrary_ones():
  environment = {
    'XLA_FLAGS': '--xla_gpu_deterministic_ops=false',
    'JAX_PLATFORMS': 'cpu',
  }
  machine.set_reproducible_flags(environment)
  assert environment['XLA_FLAGS'].split() == [
    '--xla_gpu_deterministic_ops=false',
    '--xla_gpu_deterministic_ops=true',
    '--xla_gpu_autotune_level=0',
  ]
  # An unknown flag would end the process.
  subprocess.run(
    [sys.executable, '-c', 'import jax; jax.devices()'],
    check=True,
    env={**os.environ, **environment},
  )
