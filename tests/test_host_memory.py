"""Memory that was freed is used again, without being asked of the system anew."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith('linux'), reason='glibc alone')

# Page faults of writing to 64 MiB that were written to and freed before.
_SCRIPT = """
import resource, sys
if 'keep' in sys.argv:
  from transformer import host_memory
  assert host_memory.keep()
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


def test_elsewhere_nothing_is_changed(monkeypatch):
  from transformer import host_memory
  monkeypatch.setattr(sys, 'platform', 'darwin')
  assert not host_memory.keep()
