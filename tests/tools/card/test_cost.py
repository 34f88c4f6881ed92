"""The cost of a run follows from its training steps and from the logged speeds."""

import json

import pytest

from transformer.config import Config
from transformer.tools.card.cost import cost_of

CONFIG = Config.from_dict(
  {'data': {'max_length': 100}, 'train': {'tokens_per_batch': 1000}}
)
H100 = {'count': 2, 'kind': 'H100'}
# 300 training steps, started on other devices.
RECORD = {
  'flops_per_step': 1e12,
  'devices': {'count': 2, 'kind': 'TPU v4'},
  'resumed': [{'devices': H100, 'trains': True}],
}


@pytest.fixture
def run(tmp_path):
  """Writes the metrics of a run; the first line has no speed, the last is incomplete."""
  lines = [
    {'step': 50, 'train/fill': 0.9},
    {'step': 100, 'valid/bleu': 3.0},
    {'step': 100, 'train/fill': 0.8, 'tokens_per_second': 400.0},
    {'step': 200, 'train/fill': 0.5, 'tokens_per_second': 500.0},
    {'step': 300, 'train/fill': 0.5, 'tokens_per_second': 50.0},
  ]
  text = '\n'.join(map(json.dumps, lines))
  (tmp_path / 'metrics.jsonl').write_text(text + '\n{"step": 3', 'utf-8')
  return tmp_path


def test_hours_follow_from_tokens_and_speeds_and_flops_from_training_steps(run):
  # 50 updates of 800 tokens at 400 a second, 100 of 500 at 500, and 100 of 500 at 50: 250 updates
  # in 1,200 seconds, and 50 more like them, on two devices.
  hours = 2 * 1200 * (300 / 250) / 3600
  expected = f'3.00e+14 FLOPs in {hours:.3g} device hours on 2 × H100'
  assert cost_of(run, RECORD, CONFIG) == expected


def test_only_sessions_that_train_have_a_part_in_the_cost(run):
  cpu = {'count': 1, 'kind': 'cpu'}
  evaluated = {'devices': cpu, 'trains': False}
  record = {**RECORD, 'resumed': [*RECORD['resumed'], evaluated]}
  assert cost_of(run, record, CONFIG).endswith('device hours on 2 × H100')
  # On changing numbers of devices, there are no hours.
  record['resumed'].append({'devices': cpu, 'trains': True})
  assert cost_of(run, record, CONFIG) == '3.00e+14 FLOPs on 1 × cpu'


def test_a_run_without_speeds_or_flops_says_less(run):
  assert cost_of(run, {**RECORD, 'flops_per_step': None}, CONFIG) == ''
  (run / 'metrics.jsonl').write_text('{"step": 50, "train/fill": 0.9}\n', 'utf-8')
  assert cost_of(run, RECORD, CONFIG) == '5.00e+13 FLOPs on 2 × H100'
  (run / 'metrics.jsonl').unlink()
  assert cost_of(run, RECORD, CONFIG) == ''
