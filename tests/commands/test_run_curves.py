"""`train.py` draws the curves of its run at the end, and none of what fails there ends the run."""

import json
import os
import shutil

import pytest

from tests.runs.test_curves import drawn


def test_a_run_that_is_done_has_its_curves(train, trained, folder, tmp_path):
  lines = drawn(trained / 'curves.svg')
  rows = [json.loads(line) for line in (trained / 'metrics.jsonl').read_text().splitlines()]
  assert {metric: len(points) for (_, metric), points in lines.items()} == {
      metric: sum(metric in row for row in rows)
      for metric in ('train/loss', 'valid/loss', 'valid/bleu', 'train/learning_rate',
                     'tokens_per_second')}
  shutil.copytree(trained, tmp_path / 'run')
  # The curves of a finished run are drawn again only if they were lost.
  picture, times = tmp_path / 'run' / 'curves.svg', []
  for lost in (False, True):
    times.append(os.stat(picture).st_mtime_ns)
    if lost:
      picture.unlink()
    status, _, err = train(f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run')
    assert status == 0 and 'the run is done' in err
  times.append(os.stat(picture).st_mtime_ns)
  assert times[0] == times[1] < times[2]
  # Neither the curves nor the cost end a run that has trained.
  picture.unlink()
  metrics = tmp_path / 'run' / 'metrics.jsonl'
  metrics.write_text(metrics.read_text().replace('"train/fill": ', '"train/fill": "?", "x": '))
  status, _, err = train(f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run')
  assert status == 0 and 'the best step on the validation split' in err, err
  assert 'curves.svg was not drawn: ' in err and 'cost of the run is not rec' in err


@pytest.mark.long
def test_a_run_whose_curves_cannot_be_drawn_is_done_all_the_same(train, trained, folder, tmp_path):
  shutil.copytree(trained, tmp_path / 'run')
  (tmp_path / 'run' / 'curves.svg').unlink()
  (tmp_path / 'run' / 'curves.svg').mkdir()
  status, _, err = train(f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run',
                         '--config.train.steps=3')
  assert status == 0, err
  warning, = (line for line in err.splitlines() if 'curves.svg' in line)
  assert warning.startswith('W') and f'{tmp_path}/run/curves.svg cannot be written' in warning
