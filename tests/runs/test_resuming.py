"""What may change when a run is resumed is what the page says."""

import pathlib
import re

import pytest

from transformer import files
from transformer.config import Config, flatten
from transformer.errors import UserError
from transformer.runs.resuming import (
  check_none_lost,
  check_same_settings,
  check_same_start,
  record_newest,
)
from transformer.runs.run_directory import FORMAT
from transformer.training.config import SCHEDULES

SETTINGS = flatten(Config().to_dict())
PAGE = pathlib.Path(__file__).parents[2] / 'docs/runs.md'
# The page names them to say what else must hold, or what stays.
NOT_THESE = {
  'train.best_by',
  'train.init_from',
  'decode.max_extra_length',
  'decode.dtype',
  'decode.search',
  'decode.bleu_tokenize',
}


def may_change(name, **others):
  before = {**SETTINGS, **others}
  try:
    check_same_settings('run', before, {**before, name: 'changed'})
  except UserError:
    return False
  return True


def test_the_settings_that_may_change_are_those_of_the_page():
  section = PAGE.read_text('utf-8').split('## Settings that may change on resume\n\n')[1]
  named = set(re.findall(r'`([a-z]+\.[a-z_*]+)`', section.split('\n\n')[0])) - NOT_THESE
  wanted = {
    name
    for name in SETTINGS.keys() - NOT_THESE
    if name in named or f'{name.partition(".")[0]}.*' in named
  }
  assert wanted == set(filter(may_change, SETTINGS)) and len(wanted) > 20


def test_an_origin_may_lie_elsewhere_and_a_length_on_which_a_schedule_may_depend_stays():
  assert may_change('train.init_from', **{'train.init_from': 'before'})
  assert not may_change('train.init_from')
  for schedule, keeps_length in {**SCHEDULES, 'm:f': True, ('m:f', 1.0): True}.items():
    assert may_change('train.steps', **{'optimizer.schedule': schedule}) is not keeps_length


def test_data_that_is_changed_missing_or_new_is_refused(tmp_path):
  data = {'vocabulary': 'a', 'train/x': 'b', 'valid': 'c'}
  about = {'format': FORMAT, 'origin': None, 'frozen': []}
  files.write_sealed(tmp_path / 'run.json', {**about, 'data': data})
  check_same_start(tmp_path, data, None, None)
  for other in (
    {**data, 'train/x': 'c'},
    {**data, 'train/y': 'b'},
    {name: data[name] for name in ('vocabulary', 'train/x')},
  ):
    with pytest.raises(UserError, match=r'was trained on other data: (train/x|train/y|valid) '):
      check_same_start(tmp_path, other, None, None)
  files.write_sealed(tmp_path / 'run.json', {**about, 'data': 5})
  with pytest.raises(UserError, match=r'run.json should hold the fingerprints of its data; got 5'):
    check_same_start(tmp_path, data, None, None)


@pytest.fixture
def run(tmp_path):
  """A run with the checkpoints 100 and 200 on record, whose metrics go to step 250."""
  for step in (100, 200):
    (tmp_path / f'checkpoints/{step}').mkdir(parents=True)
  (tmp_path / 'metrics.jsonl').write_text('{"step": 250}\n{"step": 9', 'utf-8')
  record_newest(tmp_path, 200)
  return tmp_path


def refusal(run):
  with pytest.raises(UserError) as error:
    check_none_lost(run)
  return str(error.value)


def test_a_run_that_lost_its_newest_checkpoint_or_all_is_refused_and_the_way_out_is_one(run):
  check_none_lost(run)
  (run / 'checkpoints/200').rename(run / 'elsewhere')
  message = refusal(run)
  assert 'to step 250, and its newest checkpoint is that of step 100; restore' in message
  assert message.endswith(f'to go on without, remove {run}/saved.json')
  (run / 'checkpoints/100').rmdir()
  for mounted in (True, False):
    message = refusal(run)
    assert f'it has no checkpoint; restore {run}/checkpoints or mount it again' in message
    assert message.endswith(f'to go on without, remove {run}/saved.json and {run}/metrics.jsonl')
    if mounted:
      (run / 'checkpoints').rmdir()
  for name in ('saved.json', 'metrics.jsonl'):
    (run / name).unlink()
  check_none_lost(run)


@pytest.mark.parametrize(
  ('name', 'there'),
  [
    ('checkpoints/300', True),  # A kill came before the record.
    ('checkpoints/200.damaged', True),
    ('checkpoints/200.damaged.2', True),
    ('checkpoints/removed/200', True),
    ('checkpoints/removed/150', False),
    ('checkpoints/200.unsealed', False),
    ('checkpoints/200.orbax-checkpoint-tmp-7', False),
  ],
)
def test_what_counts_as_the_newest_checkpoint(run, name, there):
  (run / 'checkpoints/200').rmdir()
  (run / name).mkdir(parents=True)
  if there:
    check_none_lost(run)
  else:
    refusal(run)


def test_a_damaged_record_costs_no_checkpoint_that_is_there(run, caplog):
  (run / 'saved.json').write_text('{"step": 9')
  check_none_lost(run)
  assert 'saved.json' in caplog.text
  (run / 'checkpoints').rename(run / 'elsewhere')
  assert 'it has no checkpoint' in refusal(run)


@pytest.mark.parametrize(
  ('newest', 'reached', 'refused'), [(None, 1, True), (None, 0, False), (100, 300, False)]
)
def test_a_run_without_the_record_is_judged_by_its_metrics(run, newest, reached, refused):
  (run / 'saved.json').unlink()
  for step in {100, 200} - {newest}:
    (run / f'checkpoints/{step}').rmdir()
  (run / 'metrics.jsonl').write_text(f'{{"step": {reached}}}\n', 'utf-8')
  if refused:
    assert refusal(run).endswith(f'{run}/metrics.jsonl')
  else:
    check_none_lost(run)
