"""A new run logs whether the CPU multiplies faster in bfloat16."""

import math

import pytest
from absl import logging

from transformer.model.config import ModelConfig
from transformer.system import bfloat16


@pytest.fixture
def lines(monkeypatch):
  found = []
  monkeypatch.setattr(
    logging, 'info', lambda text, *values: found.append(text % values)
  )
  return found


@pytest.mark.parametrize(
  ('speedup', 'dtype', 'width', 'advised'),
  [
    (2.0, 'float32', 256, True),
    (1.1, 'float32', 256, False),
    (2.0, 'bfloat16', 256, False),
    (2.0, 'float32', 128, False),
  ],
)
def test_bfloat16_is_advised_where_it_gains(
  monkeypatch, lines, speedup, dtype, width, advised
):
  monkeypatch.setattr(bfloat16, 'bfloat16_speedup', lambda: speedup)
  bfloat16.advise_bfloat16(ModelConfig(dtype=dtype, model_dim=width))
  assert [line for line in lines if 'model.dtype=bfloat16' in line] == lines
  assert bool(lines) == advised


def test_the_speedup_is_a_ratio_of_times():
  speedup = bfloat16.bfloat16_speedup()
  assert math.isfinite(speedup) and speedup > 0
