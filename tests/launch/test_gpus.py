"""A launcher sees the GPUs that CUDA would."""

import pytest

from launch import gpus


@pytest.mark.parametrize(
  ('environment', 'wanted'),
  [
    ({}, ['0', '1']),
    ({'JAX_PLATFORMS': 'cpu'}, []),
    ({'CUDA_VISIBLE_DEVICES': '1'}, ['1']),
    ({'CUDA_VISIBLE_DEVICES': ''}, []),
    ({'CUDA_VISIBLE_DEVICES': '-1'}, []),
    ({'CUDA_VISIBLE_DEVICES': 'GPU-ab, 3,-1,2'}, ['GPU-ab', '3']),
  ],
)
def test_the_gpus_of_a_process_are_those_that_cuda_would_take(
  tmp_path, monkeypatch, environment, wanted
):
  for name in ('0000:1a:00.0', '0000:1b:00.0'):
    (tmp_path / name).mkdir()
  monkeypatch.setattr(gpus, '_GPUS', tmp_path)
  assert gpus.visible_gpus(environment) == wanted
  monkeypatch.setattr(gpus, '_GPUS', tmp_path / 'none')
  assert gpus.visible_gpus({}) == []
