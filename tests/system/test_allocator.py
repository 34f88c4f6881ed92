"""Freed memory is used again without page faults."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith('linux'), reason='glibc alone')

# Prints the page faults of writing to 64 MiB for the second time, and the peak memory in MiB.
_SCRIPT = """
import resource, sys
if 'keep' in sys.argv:
  from transformer.system import allocator
  assert allocator.keep_freed_memory()
def faults():
  before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  block = b'1' * (64 << 20)
  return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))
print(faults(), int(peak.split()[1]) // 1024)
"""


def faults_and_megabytes(*arguments):
  done = subprocess.run([sys.executable, '-c', _SCRIPT, *arguments], capture_output=True, text=True,
                        check=True)
  return map(int, done.stdout.split())


def test_freed_memory_costs_no_page_faults_and_keeping_it_takes_none():
  before, _ = faults_and_megabytes()
  after, megabytes = faults_and_megabytes('keep')
  assert after < before / 10
  assert megabytes < 256


def test_other_systems_are_left_unchanged(monkeypatch):
  from transformer.system import allocator
  monkeypatch.setattr(sys, 'platform', 'darwin')
  assert not allocator.keep_freed_memory()
