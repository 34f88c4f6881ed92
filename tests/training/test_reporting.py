"""Logs that cannot be written do not end a run, and lose nothing that a run can keep."""

import contextlib
import errno
import hashlib
import json
import os

import pytest

from tests.training.conftest import NumberedBatches, Settings, make_batch
from tests.training.test_loop import final_state, rows_of
from transformer.training import reporting
from transformer.training.loop import train
from transformer.training.reporting import Reporter


class Full:
  """Stands in for `os.write`, on a disk that takes so many bytes more."""

  def __init__(self, room):
    self.room = room

  def __call__(self, file, data):
    if not self.room:
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    written = WRITE(file, data[:self.room])
    self.room -= written
    return written


WRITE = os.write


def steps_in(workdir):
  return [json.loads(line)['step']
          for line in (workdir / 'metrics.jsonl').read_text().splitlines(keepends=True)
          if line.endswith('\n')]


@contextlib.contextmanager
def reporting_to(workdir, step=0, **options):
  reporter = Reporter(workdir, step, 99, **options)
  try:
    yield reporter
  finally:
    reporter.close()


@pytest.mark.parametrize('room', [0, 1, 17, 26])
def test_a_line_that_does_not_fit_waits_and_no_part_of_it_stays(tmp_path, monkeypatch, room):
  warnings = []
  monkeypatch.setattr(reporting.logging, 'warning', lambda *each: warnings.append(each[-1]))
  with reporting_to(tmp_path) as reporter:
    reporter.write(1, {'a': 1.0}, {})
    whole = (tmp_path / 'metrics.jsonl').read_bytes()
    assert len(whole) == 22
    full = Full(room)
    monkeypatch.setattr(reporting.os, 'write', full)
    kept = 0
    for step in (2, 3, 4):
      reporter.write(step, {'a': 1.0}, {})
      kept = min(step - 1, room // 22)
      assert steps_in(tmp_path) == [1, 2][:1 + kept]
      assert (tmp_path / 'metrics.jsonl').stat().st_size == 22 * (1 + kept)
    assert len(reporter.written()['unwritten']) == 3 - kept
    assert reporter.written()['bytes'] == 22 * (1 + kept)
    assert len(warnings) == 1 and 'metrics.jsonl cannot be written: No space left' in warnings[0]
    full.room = 10_000
    reporter.write(5, {'a': 1.0}, {})
    assert steps_in(tmp_path) == [1, 2, 3, 4, 5] and reporter.written()['unwritten'] == []
    full.room = 0
    reporter.write(6, {'a': 1.0}, {})
    assert len(warnings) == 2  # It is another fault.
    full.room = 10_000
  assert steps_in(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_lines_that_a_checkpoint_kept_are_written_once(tmp_path):
  lines = [json.dumps({'step': step}) + '\n' for step in (1, 2, 3, 4)]
  # The second was written after the checkpoint of step 3, and then a later one.
  (tmp_path / 'metrics.jsonl').write_text(''.join(lines[:2]) + lines[3] + '{"st')
  written = {'bytes': len(lines[0]), 'sha256': hashlib.sha256(lines[0].encode()).hexdigest(),
             'unwritten': lines[1:3]}
  with reporting_to(tmp_path, 3, written=written):
    assert steps_in(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize('damage', ['flip', 'digit', 'delete', 'lose', 'empty'])
def test_metrics_that_were_changed_are_told_and_kept_aside(tmp_path, monkeypatch, damage):
  warnings = []
  monkeypatch.setattr(reporting.logging, 'warning', lambda *each: warnings.append(each[-1]))
  with reporting_to(tmp_path) as reporter:
    for step in (1, 2, 3):
      reporter.write(step, {'a': 1.0}, {})
    written = reporter.written()
    reporter.write(4, {'a': 1.0}, {})
  path = tmp_path / 'metrics.jsonl'
  with reporting_to(tmp_path, 3, written=written):
    assert steps_in(tmp_path) == [1, 2, 3] and warnings == []
  whole = path.read_bytes()
  lines = whole.splitlines(keepends=True)
  found, left = {
      'flip': (whole.replace(b'{"step": 2', b'["step": 2'), [1, 3]),
      'digit': (whole.replace(b'"step": 2, "a": 1', b'"step": 2, "a": 7'), [1, 2, 3]),
      'delete': (lines[0] + lines[2], [1, 3]), 'lose': (whole[:-3], [1, 2]), 'empty': (b'', []),
  }[damage]
  path.write_bytes(found)
  with reporting_to(tmp_path, 3, written=written) as reporter:
    assert steps_in(tmp_path) == left
    reporter.write(5, {'a': 1.0}, {})
    later = reporter.written()
  assert len(warnings) == 1 and 'metrics.jsonl is not as it was written up to step 3' in warnings[0]
  assert (tmp_path / 'metrics.jsonl.damaged').read_bytes() == found
  with reporting_to(tmp_path, 5, written=later):  # It is told once.
    assert steps_in(tmp_path) == [*left, 5] and len(warnings) == 1


def test_a_run_whose_metrics_cannot_be_written_has_them_when_it_goes_on(
    model, tmp_path, monkeypatch):
  def run(workdir, fatal=None):
    return train(Settings(), model, NumberedBatches(fatal), [make_batch(100)], lambda params: 0.0,
                 workdir)

  run(tmp_path / 'whole')
  (tmp_path / 'parts').mkdir()
  monkeypatch.setattr(reporting.os, 'write', Full(30))
  with pytest.raises(InterruptedError):
    run(tmp_path / 'parts', fatal=11)
  assert steps_in(tmp_path / 'parts') == []
  monkeypatch.undo()
  run(tmp_path / 'parts')
  assert rows_of(tmp_path / 'parts') == rows_of(tmp_path / 'whole')
  states = [final_state(tmp_path / name) for name in ('parts', 'whole')]
  assert states[0]['history'] == states[1]['history']


def test_tensorboard_ends_where_it_cannot_be_written(tmp_path, monkeypatch):
  warnings = []
  monkeypatch.setattr(reporting.logging, 'warning', lambda *each: warnings.append(each[-1]))
  with reporting_to(tmp_path) as reporter:
    reporter.write(1, {'a': 1.0}, {})
    size = sum(path.stat().st_size for path in (tmp_path / 'tensorboard').iterdir())
    assert size > 0

    def fail(*_):
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(reporting.EventsWriter, 'write_event', fail)
    for step in range(2, 40):
      reporter.write(step, {'a': 1.0}, {})
  assert steps_in(tmp_path) == list(range(1, 40))
  assert len(warnings) == 1 and 'tensorboard cannot be written: No space left' in warnings[0]
