"""Metrics are sums over training steps, divided once; times count only training steps."""

import math
import time

import numpy as np
import pytest

from transformer.experiment import meter as meter_file
from transformer.experiment.meter import WALL_CLOCK, Meter
from transformer.model.config import ModelConfig
from transformer.model.flops import train_flops_per_token
from transformer.model.transformer import Transformer
from transformer.training.objective import Objective

SUMS = dict.fromkeys(('loss', 'nll', 'gradient_norm', 'weight', 'source_tokens'), 1.0)


def test_meter_divides_sums_once():
  meter = Meter({}, positions=20)
  meter.add(
    {
      'loss': 30.0,
      'nll': 10.0,
      'weight': 10.0,
      'gradient_norm': 1.0,
      'source_tokens': 9.0,
    }
  )
  meter.add(
    {'loss': 2.0, 'nll': 2.0, 'weight': 2.0, 'gradient_norm': 4.0, 'source_tokens': 3.0}
  )
  values = meter.flush(0.5)
  assert values['train/loss'] == pytest.approx(32 / 12)
  assert values['train/perplexity'] == pytest.approx(np.exp(1.0))
  assert values['train/gradient_norm'] == pytest.approx(2.5)
  assert values['train/fill'] == pytest.approx(12 / 40)
  assert values['train/learning_rate'] == 0.5
  assert meter.sums == {}


def test_times_are_only_of_training_steps_after_the_first_and_include_the_wait_for_batches(
  monkeypatch,
):
  now = 0.0
  monkeypatch.setattr(time, 'perf_counter', lambda: now)

  def slow(waits):
    nonlocal now
    for wait in waits:
      now += wait
      yield wait

  meter = Meter({}, positions=20, utilization_per_token_rate=(0.01, 1.0))
  # The first step compiles, so it is not timed, and neither is the wait before it.
  for wait in meter.measure_wait(slow([100.0, 3.0, 0.0, 1.0])):
    now += 2.0
    meter.add({**SUMS, 'weight': 5.0 + wait, 'source_tokens': 10 * wait})
    if wait == 3.0:
      now += 50.0  # An evaluation.
      meter.restart_clock()
  values, seconds, source, target = meter.flush(0.5), 5 + 2 + 3, 30 + 0 + 10, 8 + 5 + 6
  assert values['train/data_wait'] == pytest.approx((3 + 0 + 1) / seconds)
  assert values['tokens_per_second'] == pytest.approx(target / seconds)
  assert values['flops_utilization'] == pytest.approx(
    source / seconds / 100 + target / seconds
  )
  for _ in meter.measure_wait(slow([0.0, 0.0])):
    now += 2.0
    meter.add(SUMS)
  assert meter.flush(0.5)['train/data_wait'] == 0.0


def test_utilization_counts_the_passes_and_other_models_and_divides_by_all_peaks(
  monkeypatch,
):
  model = Transformer(
    ModelConfig(num_layers=1, model_dim=8, ff_dim=12, num_heads=2), 11
  )
  other = Transformer(
    ModelConfig(num_layers=2, model_dim=8, ff_dim=12, num_heads=2), 11
  )
  objective = Objective(None, passes=2, extra_models=[other])
  monkeypatch.setattr(meter_file, 'peak_flops', lambda kind: None)
  assert meter_file.utilization_per_token_rate(model, 4, objective) is None
  monkeypatch.setattr(meter_file, 'peak_flops', lambda kind: 1e6)
  of_source, of_target = train_flops_per_token(model, 2, [other])
  assert meter_file.utilization_per_token_rate(model, 4, objective) == pytest.approx(
    (of_source / 4e6, of_target / 4e6)
  )


def test_metrics_from_a_clock_are_omitted_if_no_step_was_timed():
  meter = Meter({}, positions=20, utilization_per_token_rate=(1.0, 1.0))
  meter.add(SUMS)  # The first step of a process.
  first = meter.flush(0.5)
  meter.add(SUMS)
  second = meter.flush(0.5)
  assert not first.keys() & set(WALL_CLOCK) and second.keys() - first.keys() == set(
    WALL_CLOCK
  )


def test_meter_counts_only_the_time_of_skipped_training_steps():
  meter = Meter({}, positions=20)
  good = {
    'loss': 4.0,
    'nll': 2.0,
    'weight': 10.0,
    'gradient_norm': 3.0,
    'source_tokens': 9.0,
  }
  bad = {**dict.fromkeys(good, math.nan), 'weight': 10.0, 'source_tokens': 9.0}
  for metrics in (good, good, bad, good):
    meter.add(metrics, skipped=metrics is bad)
  values = meter.flush(0.5)
  assert (
    values['train/loss'],
    values['train/gradient_norm'],
    values['train/fill'],
  ) == (0.4, 3.0, 0.5)
  meter.add(bad, skipped=True)
  values = meter.flush(0.5)
  assert math.isnan(values['train/loss']) and math.isnan(values['train/perplexity'])
  assert values['train/fill'] == 0.0
  assert values['tokens_per_second'] > 0
