"""A full disk ends no run, the device waits for no log, and terminals show the progress."""

import contextlib
import errno
import math
import os
import pty
import re
import sys
import termios
import time
import types

import jax
import pytest

from tests.experiment.tensorboard_events import samples_of, shown
from tests.experiment.tiny_runs import rows_of, run
from tests.tiny_training import TinyValidation, make_batch
from transformer.experiment import run_logger, tensorboard
from transformer.experiment.run_logger import RunLogger
from transformer.experiment.trackers import Sample
from transformer.experiment.validation import Evaluation
from transformer.training.config import TrainConfig
from transformer.training.objective import Objective
from transformer.training.step import Skips

HOSTILE = Sample('a | b \\ *c* `d` [e](f)', '<b>& # _g_ ~h~', '$x$ ![i](j) 1. - — ü')


@contextlib.contextmanager
def logging_to(workdir, step=0, steps=99, **settings):
  """Yields a `RunLogger` of a model without parameters."""
  config = TrainConfig(**{'log_every': 1, 'steps': steps, **settings})
  setup = types.SimpleNamespace(
    config=types.SimpleNamespace(train=config),
    model=None,
    objective=Objective(None),
    num_parameters=0,
    schedule=lambda updates: updates + 0.5,
    mesh=types.SimpleNamespace(size=1),
  )
  with RunLogger(workdir, setup, step, {'meter': {}}, (4, 5, 5)) as logger:
    yield logger


def metrics_of(loss):
  return {
    'loss': loss,
    'nll': 1.0,
    'weight': 1.0,
    'gradient_norm': 1.0,
    'source_tokens': 1.0,
  }


def add(logger, step, loss=2.0):
  logger.log_step(step, None, metrics_of(loss))
  logger.log_pending_step()


def evaluated(logger, step, bleu, samples=()):
  values = {'valid/loss': 3.0, 'valid/bleu': bleu}
  logger.log_evaluation(
    step, Evaluation(values, {}, samples), [{'step': step, **values}]
  )


@pytest.fixture
def said(caplog):
  """Returns a function that returns the lines that were logged, without those at the start."""
  caplog.set_level('INFO')
  return lambda: [
    record.message
    for record in caplog.records
    if record.name == 'absl' and ' device(s)' not in record.message
  ]


def test_metrics_are_fetched_a_training_step_late_and_once(tmp_path, monkeypatch):
  fetched = []

  def device_get(metrics):
    fetched.append(metrics['loss'])
    return metrics

  with logging_to(tmp_path) as logger:
    monkeypatch.setattr(jax, 'device_get', device_get)
    for step in (1, 2, 3):
      logger.log_step(step, None, metrics_of(float(step)))
      assert fetched == list(range(1, step))
    for _ in range(2):
      logger.log_pending_step()
      assert fetched == [1, 2, 3]


@pytest.mark.parametrize(
  ('skips', 'rates'),
  [
    ((None, None), [0.5, 1.5]),
    # The third training step is skipped, and does not count for the schedule.
    ((Skips(0, 0), Skips(0, 0), Skips(1, 1), Skips(1, 0)), [0.5, 1.5, 2.5, 2.5]),
  ],
)
def test_a_line_has_the_learning_rate_of_its_training_step(tmp_path, skips, rates):
  with logging_to(tmp_path, max_consecutive_nonfinite=1) as logger:
    for step, counts in enumerate(skips, 1):
      loss = math.nan if counts and counts.in_a_row else 2.0
      logger.log_step(
        step, make_batch(0), metrics_of(loss) | ({'skips': counts} if counts else {})
      )
      logger.log_pending_step()
  assert [row['train/learning_rate'] for row in rows_of(tmp_path)] == rates


@pytest.mark.parametrize(
  'error', [OSError(errno.ENOSPC, 'No space left'), ValueError('odd')]
)
def test_tensorboard_gets_nothing_after_a_failed_write(
  tmp_path, monkeypatch, said, error
):
  with logging_to(tmp_path) as logger:
    add(logger, 1)

    def fail(*_):
      raise error

    monkeypatch.setattr(tensorboard.EventsWriter, 'write_event', fail)
    for step in range(2, 40):
      add(logger, step)
  assert [row['step'] for row in rows_of(tmp_path)] == list(range(1, 40))
  assert (
    len(
      [
        line
        for line in said()
        if 'tensorboard receives no more entries' in line and line.endswith(str(error))
      ]
    )
    == 1
  )


def test_without_a_terminal_a_run_logs_its_lines_and_the_time_left(
  tmp_path, monkeypatch, said
):
  now = 1000.0
  monkeypatch.setattr(run_logger.time, 'monotonic', lambda: now)
  monkeypatch.setattr(time, 'perf_counter', lambda: 0.0)
  with logging_to(tmp_path, step=20, log_every=13) as logger:
    for step in range(21, 33):
      now += 8.0
      add(logger, step, 4.321)
      if step == 26:
        evaluated(logger, step, 7.0)
    evaluated(logger, 32, math.nan)
  assert said() == [
    'step 26/99  loss 4.321  09:44 left',
    'step 26/99  valid loss 3.000 (not smoothed)  valid BLEU 7.00  the best so far',
    'step 32/99  valid loss 3.000 (not smoothed)  valid BLEU nan',
  ]


def test_a_terminal_shows_a_line_for_each_evaluation_above_a_whole_bar(
  tmp_path, monkeypatch
):
  monkeypatch.delenv('COLUMNS', raising=False)
  main, end = pty.openpty()
  termios.tcsetwinsize(end, (24, 80))
  with os.fdopen(end, 'w', encoding='utf-8') as file, monkeypatch.context() as patch:
    patch.setattr(sys, 'stderr', file)
    patch.setattr(run_logger, 'log_info', lambda line: print(line, file=sys.stderr))
    with logging_to(tmp_path, 54_321, 100_000) as logger:
      logger._bar.mininterval = 0
      evaluated(logger, 54_322, 41.04)
      add(logger, 54_400, 10.123)
  text = b''
  with contextlib.suppress(OSError):  # Linux ends the text of a terminal with EIO.
    while part := os.read(main, 1 << 16):  # The kernel hands it over in parts.
      text += part
  os.close(main)
  text = text.decode()
  assert any(
    'step 54322/100000  valid loss 3.000 (not smoothed)  valid BLEU 41.04' in line
    for line in re.split(r'[\r\n]+', text)
  )
  bar = text.rstrip().rpartition('\r')[2]
  assert 78 <= len(bar) <= 80
  assert re.fullmatch(
    r'54400/100000 54% \|.+\| [\d:?]+ left, BLEU=41\.04, loss=10\.123', bar
  ), bar


def test_the_translations_of_each_set_and_step_have_a_file(tmp_path):
  values = {'valid/loss': 3.0, 'valid/bleu': 1.0}
  with logging_to(tmp_path) as logger:
    for lines in (['ü', ''], ['again', '']):  # The run resumed before this step.
      evaluation = Evaluation(values, {'valid': lines, 'valid/talks': ['t']})
      logger.log_evaluation(15, evaluation, [{'step': 15, **values}])
  assert {
    path.name: path.read_text('utf-8') for path in (tmp_path / 'eval').iterdir()
  } == {
    'valid.15.txt': 'again\n\n',
    'valid.talks.15.txt': 't\n',
  }


def test_samples_are_shown_without_markup(tmp_path):
  samples = [HOSTILE, Sample('', 'b', '')]
  with logging_to(tmp_path) as logger:
    evaluated(logger, 3, 1.0, samples=samples)
  ((step, markdown),) = shown(tmp_path)
  assert step == 3 and samples_of(markdown) == samples


@pytest.mark.long
@pytest.mark.parametrize('fatal', [7, 11])
def test_an_evaluation_shows_its_samples_once_also_after_a_resume(
  model, tmp_path, fatal
):
  examples = TinyValidation(samples=[HOSTILE])
  run(model, tmp_path / 'whole', validation=examples)
  with pytest.raises(InterruptedError):
    run(model, tmp_path / 'parts', fatal=fatal, checkpoint_every=4, validation=examples)
  run(model, tmp_path / 'parts', checkpoint_every=4, validation=examples)
  assert [step for step, _ in shown(tmp_path / 'whole')] == [5, 10, 12]
  assert shown(tmp_path / 'parts') == shown(tmp_path / 'whole')
