"""`metrics.jsonl` holds whole lines, also after a kill or on a full disk."""

import contextlib
import os

import pytest

from transformer.errors import UserError
from transformer.runs.metrics_file import MetricsFile, read_metrics


def steps_in(workdir):
  return [row['step'] for row in read_metrics(workdir / 'metrics.jsonl')]


def opened(workdir, written=None):
  return contextlib.closing(MetricsFile(workdir / 'metrics.jsonl', written or {}))


@pytest.fixture
def written(tmp_path):
  """Returns what a checkpoint says of a file, which got more lines since."""
  with opened(tmp_path) as lines:
    for step in (1, 2, 3):
      lines.write(f'{{"step": {step}, "a": 1.0}}\n')
      if step == 2:
        written = lines.flush()
  with (tmp_path / 'metrics.jsonl').open('a') as file:
    file.write('{"st')  # A kill came.
  assert steps_in(tmp_path) == [1, 2, 3]
  return written


def test_a_resumed_run_appends_after_the_lines_of_its_checkpoint(tmp_path, written):
  with opened(tmp_path, written) as lines:
    assert steps_in(tmp_path) == [1, 2]
    lines.write('{"step": 4}\n')
  assert (tmp_path / 'metrics.jsonl').read_text() == (
    '{"step": 1, "a": 1.0}\n{"step": 2, "a": 1.0}\n{"step": 4}\n'
  )
  with opened(tmp_path):  # A new run.
    assert steps_in(tmp_path) == []


@pytest.mark.parametrize(
  ('content', 'left'), [('{"step": 1}\n{"st', [1, 4]), (None, [4])]
)
def test_a_truncated_or_removed_file_is_continued(tmp_path, written, content, left):
  (tmp_path / 'metrics.jsonl').unlink()
  if content:
    (tmp_path / 'metrics.jsonl').write_text(content)
  with opened(tmp_path, written) as lines:
    lines.write('{"step": 4}\n')
  assert steps_in(tmp_path) == left


def test_a_line_that_does_not_fit_is_one_error_and_no_part_of_it_stays(tmp_path):
  with opened(tmp_path) as lines, open('/dev/full', 'ab', buffering=0) as full:
    lines.write('{"step": 1}\n')
    whole, lines._file = lines._file, full
    with pytest.raises(
      UserError, match=r'metrics\.jsonl cannot be written: No space left'
    ):
      lines.write('{"step": 2}\n')
    lines._file = whole
    assert lines.flush() == {'bytes': os.path.getsize(tmp_path / 'metrics.jsonl')}
