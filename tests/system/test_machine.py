"""The machine: visible GPUs, and freed memory that is used again without page faults."""

import subprocess
import sys

import pytest

from transformer.config import Config
from transformer.experiment import training
from transformer.system import machine


@pytest.mark.parametrize(('environment', 'wanted'), [
    ({}, ['0', '1']), ({'JAX_PLATFORMS': 'cpu'}, []), ({'CUDA_VISIBLE_DEVICES': '1'}, ['1']),
    ({'CUDA_VISIBLE_DEVICES': ''}, []), ({'CUDA_VISIBLE_DEVICES': '-1'}, []),
    ({'CUDA_VISIBLE_DEVICES': 'GPU-ab, 3,-1,2'}, ['GPU-ab', '3'])])
def test_the_gpus_of_a_process_are_those_that_cuda_would_take(
    tmp_path, monkeypatch, environment, wanted):
  for name in ('0000:1a:00.0', '0000:1b:00.0'):
    (tmp_path / name).mkdir()
  monkeypatch.setattr(machine, '_GPUS', tmp_path)
  assert machine.visible_gpus(environment) == wanted
  monkeypatch.setattr(machine, '_GPUS', tmp_path / 'none')
  assert machine.visible_gpus({}) == []


@pytest.mark.parametrize('gpus', [[], ['0', '1']])
def test_gpus_that_jax_does_not_use_are_said(monkeypatch, gpus):
  warnings = []
  monkeypatch.setattr(training, 'visible_gpus', lambda environment: gpus)
  monkeypatch.setattr(training.logging, 'warning',
                      lambda text, *values: warnings.append(text % values))
  training._check_devices(Config.from_dict({'train': {'tokens_per_batch': 8 * 256}}))
  assert warnings == ['this machine has 2 NVIDIA GPUs, and JAX runs on the CPU: install the JAX '
                      'for them as the README says, or set JAX_PLATFORMS=cpu'] * bool(gpus)


pytestmark = pytest.mark.skipif(not sys.platform.startswith('linux'), reason='glibc alone')

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
  done = subprocess.run([sys.executable, '-c', _SCRIPT, *arguments], capture_output=True, text=True,
                        check=True)
  return map(int, done.stdout.split())


def test_freed_memory_costs_no_page_faults_and_keeping_it_takes_none():
  before, _ = faults_and_megabytes()
  after, megabytes = faults_and_megabytes('keep')
  assert after < before / 10
  assert megabytes < 256
