"""The device never waits for the log, whose lines tell of the updates that were made."""

import types

import jax

from transformer.experiment.meter import Meter
from transformer.experiment.recorder import Recorder
from transformer.experiment.reporting import NoReporter
from transformer.training.step import Skips


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


def test_a_line_has_the_rate_that_its_update_took_and_skipped_updates_take_none():
  skipped, rates = {2, 3}, {}
  guard = types.SimpleNamespace(check_update=lambda step, *_: step not in skipped,
                                is_spike=lambda *_: False)
  reporter = types.SimpleNamespace(
      advance=lambda *_: None, write_histograms=lambda *_: None,
      write=lambda step, values, *_: rates.update({step: values['train/learning_rate']}))
  recorder = Recorder(Meter({}, positions=20), guard, reporter, float, ())
  for step in (1, 2, 3, 4, 5):
    recorder.add(step, None, {
        'loss': 1.0, 'nll': 1.0, 'weight': 1.0, 'gradient_norm': 1.0, 'source_tokens': 1.0,
        'skips': Skips(len([each for each in skipped if each <= step]), 0)}, log=True)
  recorder.settle()
  # The rate is the number of the updates made before.
  assert rates == {1: 0.0, 2: 1.0, 3: 1.0, 4: 1.0, 5: 2.0}
