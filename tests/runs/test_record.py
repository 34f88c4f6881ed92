"""The cost of a run follows from its updates and from the speeds that it logged."""

import json

import pytest

from transformer import files
from transformer.runs.record import record_cost
from transformer.runs.run_directory import FORMAT

DEVICES = {'count': 2, 'kind': 'H100'}


@pytest.fixture
def run(tmp_path):
  """Writes a run of 300 updates that other devices began; its first line has no speed."""
  files.write_sealed(
    tmp_path / 'run.json',
    {
      'format': FORMAT,
      'flops_per_update': 1e12,
      'devices': {'count': 2, 'kind': 'TPU v4'},
      'resumed': [{'devices': DEVICES, 'trains': True}],
    },
  )
  files.write_sealed(
    tmp_path / 'config.json',
    {'data': {'max_length': 100}, 'train': {'tokens_per_batch': 1000}},
  )
  lines = [
    {'step': 50, 'train/fill': 0.9},
    {'step': 100, 'valid/bleu': 3.0},
    *(
      {'step': step, 'train/fill': fill, 'tokens_per_second': speed}
      for step, fill, speed in ((100, 0.8, 400.0), (200, 0.5, 500.0), (300, 0.5, 50.0))
    ),
  ]
  (tmp_path / 'metrics.jsonl').write_text(
    '\n'.join(map(json.dumps, lines)) + '\n{"step": 3'
  )
  return tmp_path


def cost_of(run, step):
  record_cost(run, step)
  return files.read_sealed(run / 'run.json', 'the record').get('cost')


def with_session(run, trains):
  about = files.read_sealed(run / 'run.json', 'the record')
  about['resumed'].append({'devices': {'count': 1, 'kind': 'cpu'}, 'trains': trains})
  files.write_sealed(run / 'run.json', about)


def test_hours_are_the_targets_by_their_speeds_and_flops_those_of_the_updates(
  run, caplog
):
  caplog.set_level('INFO')
  # 50 updates of 800 tokens at 400 a second, and 100 of 500 at 500: 150 updates in 200 s.
  assert cost_of(run, 200) == {
    'flops': 200e12,
    'devices': '2 H100',
    'device_hours': pytest.approx(2 * 200 * (200 / 150) / 3600),
  }
  assert cost_of(run, 300)['device_hours'] == pytest.approx(
    2 * 1200 * (300 / 250) / 3600
  )
  assert (
    'trained with 2.00e+14 FLOPs in 0.148 device hours on 2 H100' in caplog.messages
  )


def test_only_sessions_that_train_have_a_part_in_the_cost(run):
  with_session(run, trains=False)
  assert cost_of(run, 200)['devices'] == '2 H100'
  with_session(run, trains=True)  # On changing numbers of devices, there are no hours.
  assert cost_of(run, 300) == {
    'flops': 300e12,
    'devices': '1 cpu',
    'device_hours': None,
  }


def test_a_run_without_a_speed_has_no_hours(run):
  assert cost_of(run, 50)['device_hours'] is None
  (run / 'metrics.jsonl').unlink()
  assert cost_of(run, 10) == {'flops': 1e13, 'device_hours': None, 'devices': '2 H100'}


def test_a_run_whose_operations_are_not_known_has_no_cost(run):
  about = files.read_sealed(run / 'run.json', 'the record')
  files.write_sealed(run / 'run.json', {**about, 'flops_per_update': None})
  assert cost_of(run, 200) is None
