"""Full disks do not end a run or lose its metrics, and terminals show what they should."""

import contextlib
import errno
import hashlib
import json
import os
import pty
import re
import termios
import time

import pytest

from tests.experiment.tiny_runs import final_state, rows_of
from tests.tiny_training import NumberedBatches, Settings, make_task, train_tiny
from transformer.decoding.translator import Translation
from transformer.experiment import reporting
from transformer.experiment.reporting import Reporter
from transformer.experiment.validation import make_validation


class Full:
  """Replaces `os.write`: a disk with room for so many bytes."""

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


def test_metrics_that_are_not_finite_stay_json(tmp_path):
  reporter = Reporter(tmp_path, 0, 3)
  reporter.write(1, {'a': float('nan'), 'b': float('inf'), 'c': 2.5}, {})
  reporter.close()
  def refuse(constant):
    raise ValueError(constant)
  line = json.loads((tmp_path / 'metrics.jsonl').read_text(), parse_constant=refuse)
  assert line == {'step': 1, 'a': None, 'b': None, 'c': 2.5}


@pytest.mark.parametrize('room', [0, 1, 17, 26])
def test_a_line_that_does_not_fit_is_kept_and_no_part_of_it_written(tmp_path, monkeypatch, room):
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
    assert len(warnings) == 2  # A new fault is reported again.
    full.room = 10_000
  assert steps_in(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_lines_from_a_checkpoint_are_written_once(tmp_path):
  lines = [json.dumps({'step': step}) + '\n' for step in (1, 2, 3, 4)]
  # The checkpoint of step 3 holds lines 2 and 3. Line 2 was written later, and then line 4.
  (tmp_path / 'metrics.jsonl').write_text(''.join(lines[:2]) + lines[3] + '{"st')
  written = {'bytes': len(lines[0]), 'sha256': hashlib.sha256(lines[0].encode()).hexdigest(),
             'unwritten': lines[1:3]}
  with reporting_to(tmp_path, 3, written=written):
    assert steps_in(tmp_path) == [1, 2, 3]
  (tmp_path / 'metrics.jsonl').write_text('?' + ''.join(lines))
  with reporting_to(tmp_path, 3, written=written):
    assert steps_in(tmp_path) == [2, 3]  # Line 1 is damaged; the others are there already.


@pytest.mark.parametrize('damage', ['flip', 'digit', 'delete', 'lose', 'empty'])
def test_changed_metrics_are_reported_and_copied_aside(tmp_path, monkeypatch, damage):
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
  with reporting_to(tmp_path, 5, written=later):  # It is reported once.
    assert steps_in(tmp_path) == [*left, 5] and len(warnings) == 1
  path.write_bytes(b'again')  # Without a checkpoint in between, the next start finds damage again.
  with reporting_to(tmp_path, 3, written=written):
    assert (tmp_path / 'metrics.jsonl.damaged').read_bytes() == found
    assert (tmp_path / 'metrics.jsonl.damaged.2').read_bytes() == b'again'


@pytest.mark.long
def test_a_resumed_run_writes_the_lines_that_a_full_disk_refused(
    model, tmp_path, monkeypatch):
  def run(workdir, fatal=None):
    return train_tiny(Settings(), make_task(model, NumberedBatches(fatal)), workdir)

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


@pytest.mark.parametrize(('error', 'said'), [
    (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 'No space left'),
    (ValueError('an odd name'), 'ValueError: an odd name')])
def test_tensorboard_gets_nothing_after_a_failed_write(tmp_path, monkeypatch, error, said):
  warnings = []
  monkeypatch.setattr(reporting.logging, 'warning', lambda *each: warnings.append(each[-1]))
  with reporting_to(tmp_path) as reporter:
    reporter.write(1, {'a': 1.0}, {})
    size = sum(path.stat().st_size for path in (tmp_path / 'tensorboard').iterdir())
    assert size > 0

    def fail(*_):
      raise error

    monkeypatch.setattr(reporting.RecordWriter, 'write', fail)
    for step in range(2, 40):
      reporter.write(step, {'a': 1.0}, {})
  assert steps_in(tmp_path) == list(range(1, 40))
  assert len(warnings) == 1 and f'tensorboard cannot be written: {said}' in warnings[0]


def test_without_a_terminal_a_run_logs_every_half_minute(tmp_path, monkeypatch):
  now, said = 1000.0, []
  monkeypatch.setattr(reporting.time, 'monotonic', lambda: now)
  monkeypatch.setattr(reporting.logging, 'info', lambda text, *each: said.append(text % each))
  with reporting_to(tmp_path, step=20) as reporter:
    for step in range(21, 33):
      reporter.advance(step, {'loss': '4.321'})
      now += 8.0
      if step == 26:
        reporter.write(step, {'a': 1.0}, {'loss': '4.000', 'tokens/s': '123'})
        reporter.write(step, {'b': 1.0}, {'BLEU': '7.00'}, 'valid BLEU 7.00')
  assert said == ['step 21/99  loss 4.321', 'step 25/99  loss 4.321  09:52 left',
                  'step 26/99  loss 4.000  tokens/s 123  11:40 left', 'step 26/99  valid BLEU 7.00',
                  'step 31/99  loss 4.321  09:04 left']
  assert steps_in(tmp_path) == [26, 26]  # They do not depend on the clock.


def _read_terminal(main):
  """Reads a terminal whose other end is closed; the kernel hands its text over in parts."""
  parts = []
  with contextlib.suppress(OSError):  # Linux ends the text of a terminal with EIO.
    while part := os.read(main, 1 << 16):
      parts.append(part)
  os.close(main)
  return b''.join(parts).decode()


@pytest.mark.parametrize('columns', [80, 120, 0])
def test_a_terminal_shows_a_line_for_each_evaluation_above_a_whole_bar(
    tmp_path, monkeypatch, columns):
  monkeypatch.delenv('COLUMNS', raising=False)
  main, end = pty.openpty()
  termios.tcsetwinsize(end, (24, columns))
  with open(end, 'w', encoding='utf-8') as terminal:
    monkeypatch.setattr(reporting.sys, 'stderr', terminal)
    reporter = Reporter(tmp_path, 54_321, 100_000)
    reporter._bar.mininterval = 0
    shown = {'loss': '10.123', 'tokens/s': '123,456'}
    reporter.write(54_322, {'a': 1.0}, shown)
    reporter.write(54_322, {'b': 1.0}, {'BLEU': '41.04'}, 'valid BLEU 41.04')
    reporter.advance(54_400, shown)
    reporter.close()
  text = _read_terminal(main)
  assert 'step 54322/100000  valid BLEU 41.04' in re.split(r'[\r\n]+', text)
  bar = text.rstrip().rpartition('\r')[2]
  assert (columns or 80) - 2 <= len(bar) <= (columns or 80)
  assert re.fullmatch(r'54400/100000 54% \|.+\| [\d:?]+ left, loss 10\.123, tokens/s 123,456, '
                      r'BLEU 41\.04', bar), bar


def test_a_terminal_shows_how_far_an_evaluation_is(tmp_path, monkeypatch):
  def translate(_, sentences, progress):
    answers = []
    for each in sentences:
      time.sleep(0.11)  # The bar moves at most ten times a second.
      progress(1)
      answers.append(Translation(each, 0.0, False, ()))
    return answers

  main, end = pty.openpty()
  with open(end, 'w', encoding='utf-8') as terminal:
    monkeypatch.setattr(reporting.sys, 'stderr', terminal)
    with reporting_to(tmp_path) as reporter:
      reporter.advance(1, {})
      make_validation(translate, ['a', 'b', 'c'], ['a', 'b', 'c'], 'none', None)(0)
      reporter.say('the next line')
  text = _read_terminal(main)
  before, after = text.split('the next line')
  assert 'evaluating: 1/3 33% |' in before and 'evaluating: 2/3 67% |' in before
  assert 'evaluating' not in after and '1/99' in after


def test_a_run_outlives_its_terminal(tmp_path, monkeypatch):
  main, end = pty.openpty()
  # Closing the file would write to the terminal once more.
  with contextlib.suppress(OSError), open(end, 'w', encoding='utf-8') as terminal:
    monkeypatch.setattr(reporting.sys, 'stderr', terminal)
    with reporting_to(tmp_path) as reporter:
      os.close(main)
      reporter.advance(1, {'loss': '4.321'})
      reporter.write(1, {'a': 1.0}, {})
      reporter.write(1, {'b': 1.0}, {}, 'valid BLEU 7.00')
      reporter.warn('a fault')
      reporter.write(2, {'a': 1.0}, {})
  assert steps_in(tmp_path) == [1, 1, 2]
