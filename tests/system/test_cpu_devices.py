"""The number of devices that the CPU is divided into."""

import os

import pytest

from transformer.system import cpu_devices


@pytest.mark.parametrize(('cores', 'devices'), [(1, '1'), (2, '2'), (3, '2'), (4, '4'), (64, '4')])
def test_there_are_one_two_or_four_devices(monkeypatch, cores, devices):
  monkeypatch.setattr(os, 'sched_getaffinity', lambda process: set(range(cores)), raising=False)
  environment = {}
  cpu_devices.use_cores_as_devices(environment)
  assert environment == {'JAX_NUM_CPU_DEVICES': devices}


@pytest.mark.parametrize('environment', [
    {'JAX_NUM_CPU_DEVICES': '7'}, {'XLA_FLAGS': '--xla_force_host_platform_device_count=8'}])
def test_what_the_user_has_set_stays(environment):
  before = dict(environment)
  cpu_devices.use_cores_as_devices(environment)
  assert environment == before
