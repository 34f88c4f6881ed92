"""A run that lost its newest checkpoint is noticed, and one that was killed is not refused."""

import json
import os
import shutil

import pytest

from transformer.errors import UserError
from transformer.runs.newest_checkpoint import check_newest, record_newest
from transformer.training.config import TrainConfig

CONFIG = TrainConfig(checkpoint_every=100, eval_every=200)


@pytest.fixture
def run(tmp_path):
  """A run with the checkpoints 100 and 200, and a signal's of 250, all recorded."""
  for name in ('checkpoints/100', 'checkpoints/200', 'interrupted/250'):
    (tmp_path / name).mkdir(parents=True)
  write_metrics(tmp_path, 250)
  record_newest(tmp_path)
  return tmp_path


def write_metrics(run, step):
  (run / 'metrics.jsonl').write_text(json.dumps({'step': step}) + '\n{"step": 9', 'utf-8')


def refusal(run):
  with pytest.raises(UserError) as error:
    check_newest(run, CONFIG)
  return str(error.value)


def test_a_lost_checkpoint_is_named_and_the_record_is_the_way_out(run):
  check_newest(run, CONFIG)
  shutil.rmtree(run / 'interrupted')
  for newest in ('200', '100'):
    message = refusal(run)
    assert 'had a checkpoint of step 250' in message and f'that of step {newest};' in message
    assert f'to go on from step {newest}, remove {run}/saved.json' in message
    shutil.rmtree(run / 'checkpoints' / newest)
  for lost in (True, False):  # An empty mount point, and no folder.
    message = refusal(run)
    assert f'to begin anew, remove {run}/saved.json and {run}/metrics.jsonl' in message
    if lost:
      (run / 'checkpoints').rmdir()
  (run / 'saved.json').unlink()
  (run / 'metrics.jsonl').unlink()
  check_newest(run, CONFIG)


@pytest.mark.parametrize('name', ['checkpoints/250', 'checkpoints/300', 'checkpoints/250.damaged.2',
                                  'interrupted.damaged/250'])
def test_a_later_checkpoint_and_one_that_was_moved_aside_are_enough(run, name):
  shutil.rmtree(run / 'interrupted')
  (run / name).mkdir(parents=True)
  check_newest(run, CONFIG)


def test_a_damaged_record_costs_no_checkpoint_that_is_there(run, caplog):
  (run / 'saved.json').write_text('{"step": 9')
  check_newest(run, CONFIG)
  assert f'{run}/saved.json is damaged' in caplog.text
  for folder in ('checkpoints', 'interrupted'):
    os.rename(run / folder, run / f'{folder} elsewhere')
  assert f'had checkpoints, and now there is none; restore {run}/checkpoints' in refusal(run)
  for folder in ('checkpoints', 'interrupted'):
    os.rename(run / f'{folder} elsewhere', run / folder)
  record_newest(run)
  caplog.clear()
  check_newest(run, CONFIG)
  assert not caplog.text


def test_a_damaged_checkpoint_may_be_removed_once_training_has_gone_on(run):
  os.rename(run / 'interrupted', run / 'interrupted.damaged')
  record_newest(run)
  shutil.rmtree(run / 'interrupted.damaged')
  check_newest(run, CONFIG)


@pytest.mark.parametrize('name', ['200.unsealed', '200.orbax-checkpoint-tmp-7', 'removed'])
def test_a_folder_that_is_no_checkpoint_does_not_count(run, name):
  shutil.rmtree(run / 'interrupted')
  os.rename(run / 'checkpoints' / '200', run / 'checkpoints' / name)
  assert 'that of step 100;' in refusal(run)


@pytest.mark.parametrize(('step', 'refused'), [(99, False), (200, False), (201, True)])
def test_a_run_from_before_there_was_a_record_is_judged_by_its_metrics(run, step, refused):
  (run / 'saved.json').unlink()
  write_metrics(run, step)
  check_newest(run, CONFIG)  # Older code may have saved no later checkpoint.
  for folder in ('checkpoints', 'interrupted'):
    shutil.rmtree(run / folder)
  if refused:
    assert f'had checkpoints, and now there is none; restore {run}/checkpoints' in refusal(run)
  else:  # It may have been killed before its first checkpoint was complete.
    check_newest(run, CONFIG)
  (run / 'eval').mkdir()
  (run / 'eval' / 'valid.100.txt').touch()  # Of training.
  if not refused:
    check_newest(run, CONFIG)
  (run / 'eval' / 'valid.step100.txt').touch()
  assert refusal(run).endswith(f'{run}/eval')
