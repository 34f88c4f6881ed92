"""A tracker knows a run that resumes or was moved, and neither its copy nor another run there."""

import shutil

import pytest

from transformer import files
from transformer.runs.run_directory import FORMAT
from transformer.tools._tracker_id import identity, known_run, warn_about_skipped_steps


@pytest.fixture
def run(tmp_path):
  """A run that has notified its tracker."""
  run = tmp_path / 'run'
  files.write_sealed(
    run / 'run.json', {'format': FORMAT, 'started': '2026-01-01T00:00:00Z'}
  )
  files.write_json(run / 'id.json', {'id': 'abc', **identity(run)})
  return run


def known(run):
  return known_run(run / 'id.json', 'id').get('id')


def test_a_run_that_resumes_and_one_that_was_moved_keep_their_id(run, tmp_path, caplog):
  assert known(run) == 'abc'
  moved = run.rename(tmp_path / 'moved')
  assert known(moved) == 'abc'
  (tmp_path / 'link').symlink_to(moved)
  assert known(tmp_path / 'link') == 'abc'
  run.mkdir()  # Another run, in the earlier folder.
  files.write_json(run / 'id.json', {'id': 'another'})
  assert known(moved) == 'abc'
  (moved / 'id.json').unlink()
  assert known(moved) is None and not caplog.text


def test_a_copy_and_a_run_that_began_again_in_the_folder_get_a_new_id(
  run, tmp_path, caplog
):
  copy = shutil.copytree(run, tmp_path / 'copy')
  assert known(copy) is None and f'{copy} is a copy of {run}' in caplog.text
  assert known(run) == 'abc'
  caplog.clear()
  files.write_sealed(
    run / 'run.json', {'format': FORMAT, 'started': '2026-01-02T00:00:00Z'}
  )
  assert known(run) is None and 'belongs to an earlier run' in caplog.text


@pytest.mark.parametrize(
  ('step', 'last', 'warns'), [(0, 9, True), (0, 0, False), (5, 9, False)]
)
def test_a_run_that_begins_again_says_that_its_first_lines_are_not_sent(
  run, caplog, step, last, warns
):
  warn_about_skipped_steps(run / 'id.json', step, last)
  assert ('up to step 9, so it receives only later ones' in caplog.text) == warns
