"""`metrics.jsonl` loses no line to a full disk, and tells of damage."""

import contextlib
import errno
import hashlib
import json
import os

import pytest

from transformer.runs.metrics_file import MetricsFile


class Full:
  """Replaces `os.write`: a disk with room for so many bytes."""

  def __init__(self, room):
    self.room = room

  def __call__(self, file, data):
    if not self.room:
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    written = WRITE(file, data[: self.room])
    self.room -= written
    return written


WRITE = os.write


def steps_in(workdir):
  return [
    json.loads(line)['step']
    for line in (workdir / 'metrics.jsonl').read_text().splitlines(keepends=True)
    if line.endswith('\n')
  ]


def line_of(step):
  return json.dumps({'step': step, 'a': 1.0}) + '\n'


@contextlib.contextmanager
def opened(workdir, warnings, step=0, written=None):
  lines = MetricsFile(workdir / 'metrics.jsonl', step, written or {}, warnings.append)
  try:
    yield lines
  finally:
    lines.close()


def test_a_line_that_does_not_fit_is_kept_and_no_part_of_it_written(tmp_path, monkeypatch):
  warnings, full = [], Full(22 + 17)
  monkeypatch.setattr(os, 'write', full)
  with opened(tmp_path, warnings) as lines:
    for step in (1, 2, 3):
      lines.write(line_of(step))
      assert (tmp_path / 'metrics.jsonl').read_text() == line_of(1)
    assert len(lines.written()['unwritten']) == 2 and lines.written()['bytes'] == 22
    assert len(warnings) == 1 and 'metrics.jsonl cannot be written: No space left' in warnings[0]
    full.room = 10_000
    lines.write(line_of(4))
    assert steps_in(tmp_path) == [1, 2, 3, 4] and lines.written()['unwritten'] == []
    full.room = 0
    lines.write(line_of(5))
    assert len(warnings) == 2  # A new fault is reported again.
    full.room = 10_000
  assert steps_in(tmp_path) == [1, 2, 3, 4, 5]


def test_lines_from_a_checkpoint_are_written_once(tmp_path):
  warnings, lines = [], [line_of(step) for step in (1, 2, 3, 4)]
  # The checkpoint of step 3 holds lines 2 and 3. Line 2 was written later, and then line 4.
  (tmp_path / 'metrics.jsonl').write_text(''.join(lines[:2]) + lines[3] + '{"st')
  written = {
    'bytes': len(lines[0]),
    'sha256': hashlib.sha256(lines[0].encode()).hexdigest(),
    'unwritten': lines[1:3],
  }
  with opened(tmp_path, warnings, 3, written):
    assert steps_in(tmp_path) == [1, 2, 3]
  (tmp_path / 'metrics.jsonl').write_text('?' + ''.join(lines))
  with opened(tmp_path, warnings, 3, written):
    assert steps_in(tmp_path) == [2, 3]  # Line 1 is damaged; the others are there already.


@pytest.mark.parametrize(
  ('old', 'new', 'left'),
  [
    (b'{"step": 2', b'["step": 2', [1, 3]),
    (b'"step": 2, "a": 1', b'"step": 2, "a": 7', [1, 2, 3]),
    (b'3, "a": 1.0}\n', b'3, "a"', [1, 2]),
    (b'{"step": 1, "a": 1.0}\n', b'', [2, 3]),
  ],
)
def test_changed_metrics_are_reported_and_copied_aside(tmp_path, old, new, left):
  warnings = []
  with opened(tmp_path, warnings) as lines:
    for step in (1, 2, 3):
      lines.write(line_of(step))
    written = lines.written()
    lines.write(line_of(4))
  path = tmp_path / 'metrics.jsonl'
  with opened(tmp_path, warnings, 3, written):
    assert steps_in(tmp_path) == [1, 2, 3] and warnings == []
  damaged = path.read_bytes().replace(old, new)
  path.write_bytes(damaged)
  with opened(tmp_path, warnings, 3, written) as lines:
    assert steps_in(tmp_path) == left
    lines.write(line_of(5))
    later = lines.written()
  assert len(warnings) == 1 and 'metrics.jsonl is not as it was written up to step 3' in warnings[0]
  assert (tmp_path / 'metrics.jsonl.damaged').read_bytes() == damaged
  with opened(tmp_path, warnings, 5, later):  # It is reported once.
    assert steps_in(tmp_path) == [*left, 5] and len(warnings) == 1
