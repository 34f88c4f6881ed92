"""The cost of a run follows from its updates and from the speeds that it logged."""

import json

import pytest

from transformer import files
from transformer.runs.record import record_cost, training_cost

DEVICES = {'count': 2, 'kind': 'H100'}


@pytest.fixture
def run(tmp_path):
  """Writes a run of 300 updates that other devices began; its first line has no speed."""
  files.write_sealed(tmp_path / 'run.json', {
      'flops_per_update': 1e12, 'devices': {'count': 2, 'kind': 'TPU v4'},
      'resumed': [{'devices': DEVICES}]})
  files.write_sealed(tmp_path / 'config.json', {'train': {'tokens_per_batch': 1000}})
  lines = [{'step': 50, 'train/fill': 0.9, 'train/loss': 5.0},
           {'step': 100, 'train/fill': 0.8, 'tokens_per_second': 400.0},
           {'step': 100, 'valid/bleu': 3.0},
           {'step': 200, 'train/fill': 0.5, 'tokens_per_second': 500.0},
           {'step': 300, 'train/fill': 0.5, 'tokens_per_second': 50.0}]
  (tmp_path / 'metrics.jsonl').write_text('\n'.join(map(json.dumps, lines)) + '\n{"step": 3')
  return tmp_path


def test_hours_are_the_targets_by_their_speeds_and_flops_those_of_the_updates(run):
  # 50 updates of 800 tokens at 400 a second, and 100 of 500 at 500: 150 updates in 200 s.
  cost = training_cost(run, 200)
  assert cost.flops == 200e12 and cost.devices == '2 H100'
  assert cost.device_hours == pytest.approx(2 * 200 * (200 / 150) / 3600)
  assert training_cost(run, 300).device_hours == pytest.approx(2 * 1200 * (300 / 250) / 3600)
  assert str(cost) == 'trained with 2.00e+14 FLOPs in 0.148 device hours on 2 H100'


def test_a_run_on_changing_numbers_of_devices_has_no_hours(run):
  about = files.read_sealed(run / 'run.json', 'the record')
  about['resumed'].append({'devices': {'count': 1, 'kind': 'cpu'}})
  files.write_sealed(run / 'run.json', about)
  assert str(training_cost(run, 200)) == 'trained with 2.00e+14 FLOPs on 1 cpu'


def test_a_session_that_finds_the_run_at_its_end_has_no_part_in_the_cost(run):
  cost = training_cost(run, 200)
  about = files.read_sealed(run / 'run.json', 'the record')
  about['resumed'].append({'devices': {'count': 1, 'kind': 'cpu'}, 'trains': False})
  files.write_sealed(run / 'run.json', about)
  assert training_cost(run, 200) == cost


def test_a_run_without_a_speed_has_no_hours_and_one_of_an_earlier_version_no_cost(run):
  assert training_cost(run, 50).device_hours is None
  (run / 'metrics.jsonl').unlink()
  cost = training_cost(run, 10)
  assert str(cost) == 'trained with 1.00e+13 FLOPs on 2 H100'
  record_cost(run, 10)
  about = files.read_sealed(run / 'run.json', 'the record')
  assert about['cost'] == {'flops': 1e13, 'device_hours': None, 'devices': '2 H100'}
  about.pop('flops_per_update')
  files.write_sealed(run / 'run.json', about)
  assert training_cost(run, 10) is None
