"""GPUs are found without JAX, and said if JAX does not use them."""

import pytest

from transformer.config import Config
from transformer.experiment import wiring
from transformer.system import cuda_devices


@pytest.mark.parametrize(('environment', 'wanted'), [
    ({}, ['0', '1']), ({'JAX_PLATFORMS': 'cpu'}, []), ({'CUDA_VISIBLE_DEVICES': '1'}, ['1']),
    ({'CUDA_VISIBLE_DEVICES': ''}, []), ({'CUDA_VISIBLE_DEVICES': '-1'}, []),
    ({'CUDA_VISIBLE_DEVICES': 'GPU-ab, 3,-1,2'}, ['GPU-ab', '3'])])
def test_the_gpus_of_a_process_are_those_that_cuda_would_take(
    tmp_path, monkeypatch, environment, wanted):
  for name in ('0000:1a:00.0', '0000:1b:00.0'):
    (tmp_path / name).mkdir()
  monkeypatch.setattr(cuda_devices, '_GPUS', tmp_path)
  assert cuda_devices.visible_gpus(environment) == wanted
  monkeypatch.setattr(cuda_devices, '_GPUS', tmp_path / 'none')
  assert cuda_devices.visible_gpus({}) == []


@pytest.mark.parametrize('gpus', [[], ['0', '1']])
def test_gpus_that_jax_does_not_use_are_said(monkeypatch, gpus):
  warnings = []
  monkeypatch.setattr(wiring, 'visible_gpus', lambda environment: gpus)
  monkeypatch.setattr(wiring.logging, 'warning', lambda text, *each: warnings.append(text % each))
  wiring._check_devices(Config.from_dict({'train': {'tokens_per_batch': 8 * 256}}))
  assert warnings == ['this machine has 2 NVIDIA GPUs, and JAX runs on the CPU: install the JAX '
                      'for them as the README says, or set JAX_PLATFORMS=cpu'] * bool(gpus)
