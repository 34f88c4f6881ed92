"""The device never waits for the log."""

import types

import jax

from transformer.experiment.meter import Meter
from transformer.experiment.recorder import Recorder
from transformer.experiment.reporting import NoReporter


def test_metrics_are_fetched_an_update_late_and_once(monkeypatch):
  fetched = []

  def device_get(metrics):
    fetched.append(metrics['loss'])
    return metrics

  monkeypatch.setattr(jax, 'device_get', device_get)
  guard = types.SimpleNamespace(check_update=lambda *_: True, is_spike=lambda *_: False)
  meter = Meter({}, positions=20)
  recorder = Recorder(meter, guard, NoReporter(), lambda step: 0.5, ())
  for step in (1, 2, 3):
    recorder.add(step, None, {'loss': float(step), 'nll': 1.0, 'weight': 1.0, 'gradient_norm': 1.0,
                              'source_tokens': 1.0}, log=False)
    assert fetched == list(range(1, step))
  for _ in range(2):
    recorder.settle()
    assert fetched == [1, 2, 3]
  assert meter.take(0.5)['train/loss'] == 2.0
