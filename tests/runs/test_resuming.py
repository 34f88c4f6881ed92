"""The settings that may change on resume match the page."""

import pathlib
import re

import pytest

from transformer import files
from transformer.config import Config, flatten
from transformer.errors import UserError
from transformer.runs.resuming import (
  check_checkpoints_exist,
  check_same_settings,
  check_same_start,
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


def test_the_settings_that_may_change_match_the_page():
  section = PAGE.read_text('utf-8').split('## Settings that may change on resume\n\n')[
    1
  ]
  named = set(re.findall(r'`([a-z]+\.[a-z_*]+)`', section.split('\n\n')[0])) - NOT_THESE
  wanted = {
    name
    for name in SETTINGS.keys() - NOT_THESE
    if name in named or f'{name.partition(".")[0]}.*' in named
  }
  assert wanted == set(filter(may_change, SETTINGS)) and len(wanted) > 15


def test_an_origin_may_lie_elsewhere_and_a_length_on_which_a_schedule_may_depend_stays():
  assert may_change('train.init_from', **{'train.init_from': 'before'})
  assert not may_change('train.init_from')
  for schedule, keeps_length in {**SCHEDULES, 'm:f': True, ('m:f', 1.0): True}.items():
    assert (
      may_change('train.steps', **{'optimizer.schedule': schedule}) is not keeps_length
    )


def test_data_that_is_changed_missing_or_new_is_rejected(tmp_path):
  data = {'vocabulary': 'a', 'train/x': 'b', 'valid': 'c'}
  facts = {'origin': None, 'frozen': [], 'data': data}
  files.write_sealed(tmp_path / 'run.json', {**facts, 'format': FORMAT})
  check_same_start(tmp_path, facts)
  for other in (
    {**data, 'train/x': 'c'},
    {**data, 'train/y': 'b'},
    {name: data[name] for name in ('vocabulary', 'train/x')},
  ):
    with pytest.raises(
      UserError, match=r'was trained on different data: (train/x|train/y|valid) '
    ):
      check_same_start(tmp_path, {**facts, 'data': other})


@pytest.mark.parametrize(
  ('there', 'reached', 'rejected'),
  [
    ([], 201, True),
    ([], 200, False),  # A kill may have interrupted the first checkpoint.
    (['100'], 900, False),
    (['100.damaged'], 900, False),
  ],
)
def test_a_run_that_lost_all_checkpoints_is_rejected_with_a_working_fix(
  tmp_path, there, reached, rejected
):
  for name in there:
    (tmp_path / 'checkpoints' / name).mkdir(parents=True)
  (tmp_path / 'metrics.jsonl').write_text(
    f'{{"step": {reached}}}\n{{"step": 9', 'utf-8'
  )
  if rejected:
    with pytest.raises(
      UserError, match=f'to step {reached}, but has no checkpoint'
    ) as error:
      check_checkpoints_exist(tmp_path, 100)
    assert str(error.value).endswith(f'remove {tmp_path}/metrics.jsonl')
    (tmp_path / 'metrics.jsonl').unlink()
  check_checkpoints_exist(tmp_path, 100)
