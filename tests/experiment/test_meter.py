"""Metrics are sums over updates that are divided once; times count only updates."""

import math
import time

import numpy as np
import pytest

from transformer.experiment import meter as meter_file
from transformer.experiment.meter import WALL_CLOCK, Meter
from transformer.model.config import ModelConfig
from transformer.model.flops import train_flops
from transformer.model.transformer import Transformer
from transformer.training.objective import Objective


def test_meter_divides_sums_once():
  meter = Meter({}, positions=20)
  meter.add({'loss': 30.0, 'nll': 10.0, 'weight': 10.0, 'gradient_norm': 1.0, 'source_tokens': 9.0})
  meter.add({'loss': 2.0, 'nll': 2.0, 'weight': 2.0, 'gradient_norm': 4.0, 'source_tokens': 3.0})
  values = meter.take(0.5)
  assert values['train/loss'] == pytest.approx(32 / 12)
  assert values['train/perplexity'] == pytest.approx(np.exp(1.0))
  assert values['train/gradient_norm'] == pytest.approx(2.5)
  assert values['train/fill'] == pytest.approx(12 / 40)
  assert values['train/learning_rate'] == 0.5
  assert meter.sums == {}


def test_meter_times_all_updates_but_the_first_and_those_before_a_pause(monkeypatch):
  clock = iter([1.0, 3.0, 7.0, 100.0, 102.0])
  monkeypatch.setattr(time, 'perf_counter', lambda: next(clock))
  meter = Meter({}, positions=20, utilisation=lambda source, target: source / 100 + target)
  sums = {'loss': 1.0, 'nll': 1.0, 'gradient_norm': 1.0}
  meter.add({**sums, 'weight': 1000.0, 'source_tokens': 1000.0})
  meter.add({**sums, 'weight': 5.0, 'source_tokens': 9.0})
  meter.add({**sums, 'weight': 7.0, 'source_tokens': 3.0})
  meter.restart_clock()
  meter.add({**sums, 'weight': 4.0, 'source_tokens': 6.0})
  values = meter.take(0.5)
  assert values['tokens_per_second'] == pytest.approx((5 + 7 + 4) / (2 + 4 + 2))
  assert values['flops_utilisation'] == pytest.approx((9 + 3 + 6) / 8 / 100 + 2.0)


def test_meter_measures_the_share_of_time_spent_waiting_for_batches(monkeypatch):
  now = 0.0
  monkeypatch.setattr(time, 'perf_counter', lambda: now)
  sums = {'loss': 1.0, 'nll': 1.0, 'gradient_norm': 1.0, 'weight': 1.0, 'source_tokens': 1.0}

  def slow(waits):
    nonlocal now
    for wait in waits:
      now += wait
      yield wait

  meter = Meter({}, positions=20)
  # The first step compiles, so it is not timed, and neither is the wait before it.
  for wait in meter.watch(slow([100.0, 3.0, 0.0, 1.0])):
    now += 2.0
    meter.add(sums)
    if wait == 3.0:
      now += 50.0
      meter.restart_clock()
  assert meter.take(0.5)['train/data_wait'] == pytest.approx((3 + 0 + 1) / (5 + 2 + 3))
  for _ in meter.watch(slow([0.0, 0.0])):
    now += 2.0
    meter.add(sums)
  assert meter.take(0.5)['train/data_wait'] == 0.0


def test_utilisation_counts_the_passes_and_other_models_and_divides_by_all_peaks(monkeypatch):
  model = Transformer(ModelConfig(num_layers=1, model_dim=8, ff_dim=12, num_heads=2), 11)
  other = ModelConfig(num_layers=2, model_dim=8, ff_dim=12, num_heads=2)
  objective = Objective(None, passes=2, forwards=[other])
  monkeypatch.setattr(meter_file, 'peak_flops', lambda kind: None)
  assert meter_file.utilisation(model, 4, objective) is None
  monkeypatch.setattr(meter_file, 'peak_flops', lambda kind: 1e6)
  of_source, of_target = train_flops(model.config, 11, 2, [other])
  found = meter_file.utilisation(model, 4, objective)(30.0, 70.0)
  assert found == pytest.approx((30 * of_source + 70 * of_target) / 4e6)


def test_metrics_from_a_clock_are_left_out_if_no_step_was_timed():
  sums = {'loss': 1.0, 'nll': 1.0, 'gradient_norm': 1.0, 'weight': 1.0, 'source_tokens': 1.0}
  meter = Meter({}, positions=20, utilisation=lambda source, target: source + target)
  meter.add(sums)  # The first step of a process.
  assert meter.tokens_per_second is None
  first = meter.take(0.5)
  assert not first.keys() & set(WALL_CLOCK)
  meter.add(sums)
  speed = meter.tokens_per_second
  second = meter.take(0.5)
  assert second.keys() - first.keys() == set(WALL_CLOCK)
  assert second['tokens_per_second'] == speed > 0


def test_meter_counts_spikes_and_only_the_time_of_skipped_updates():
  meter = Meter({}, positions=20)
  good = {'loss': 4.0, 'nll': 2.0, 'weight': 10.0, 'gradient_norm': 3.0, 'source_tokens': 9.0}
  bad = {**dict.fromkeys(good, math.nan), 'weight': 10.0, 'source_tokens': 9.0}
  for spike, metrics in ((False, good), (True, good), (False, bad), (True, good)):
    meter.add({**metrics, 'spikes': spike}, skipped=metrics is bad)
  values = meter.take(0.5)
  assert (values['train/loss'], values['train/gradient_norm'], values['train/fill'],
          values['train/spikes']) == (0.4, 3.0, 0.5, 2)
  meter.add({**bad, 'spikes': False}, skipped=True)
  values = meter.take(0.5)
  assert math.isnan(values['train/loss']) and math.isnan(values['train/perplexity'])
  assert (values['train/fill'], values['train/spikes']) == (0.0, 0.0)
  assert values['tokens_per_second'] > 0
