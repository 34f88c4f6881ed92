"""Trackers are notified of a run in order, and no failure of a tracker changes the run."""

import _thread
import csv
import threading
import time

import jax
import numpy as np
import pytest

from tests.experiment.test_run_logger import add as add_update
from tests.experiment.test_run_logger import evaluated, logging_to
from tests.experiment.tiny_runs import final_state, rows_of, run
from transformer import plugins
from transformer.config import Config
from transformer.errors import StoppedBySignal, UserError
from transformer.experiment.preparation import check_run
from transformer.experiment.tensorboard import TENSORBOARD
from transformer.experiment.trackers import Sample, Trackers

SAMPLE = Sample('a', 'b', 'c')
RECORDED = []


class Memory:
  """Records its calls; fails where requested."""

  fails = ''

  def __init__(self, config, workdir, step):
    self.record('__init__', config.train.steps, workdir.name, step)

  def record(self, method, *arguments):
    if method == self.fails:
      raise OSError('no route')
    RECORDED.append((method, *arguments))

  def log_metrics(self, step, values):
    self.record('log_metrics', step, values)

  def log_samples(self, step, samples):
    self.record('log_samples', step, samples)

  def close(self, error):
    self.record('close', error)


class Erroneous(Memory):
  def __init__(self, *_):
    raise UserError('log in first')


class Greedy:
  """Empties its arguments."""

  def __init__(self, *_):
    self.log_metrics = lambda step, values: values.clear()


class Deaf:
  def __init__(self, *_):
    self.log_metrics = lambda *_: threading.Event().wait(60)


@pytest.fixture(autouse=True)
def recorded():
  RECORDED.clear()
  return RECORDED


def path_of(cls):
  return f'{__name__}:{cls.__name__}'


def warnings_of(caplog):
  return [record.message for record in caplog.records if record.levelname == 'WARNING']


def log_two_steps(workdir, cls=Memory, **settings):
  with logging_to(workdir, trackers=(path_of(cls),), **settings) as logger:
    add_update(logger, 1)
    evaluated(logger, 2, 7.0, [SAMPLE])


def test_a_tracker_receives_lines_and_samples_in_order(tmp_path):
  log_two_steps(tmp_path)
  (first, updates, evaluation, *rest) = RECORDED
  assert first == ('__init__', 99, tmp_path.name, 0)
  assert updates[:2] == ('log_metrics', 1) and updates[2]['train/loss'] == 2.0
  assert evaluation == ('log_metrics', 2, {'valid/loss': 3.0, 'valid/bleu': 7.0})
  assert rest == [('log_samples', 2, [SAMPLE]), ('close', None)]


def test_a_tracker_knows_why_a_run_stops(tmp_path):
  stop = StoppedBySignal('stopped')
  with (
    pytest.raises(StoppedBySignal),
    logging_to(tmp_path, trackers=(path_of(Memory),)),
  ):
    raise stop
  assert RECORDED[-1] == ('close', stop)


def test_a_tracker_that_changes_its_arguments_changes_nothing_else(tmp_path):
  values = {'valid/loss': 3.0}
  with logging_to(tmp_path, trackers=(path_of(Greedy), path_of(Memory))) as logger:
    logger._write(1, values, {})
  assert values == {'valid/loss': 3.0} and RECORDED[1] == ('log_metrics', 1, values)


@pytest.mark.parametrize(
  ('method', 'calls'),
  [
    ('__init__', ''),
    ('log_metrics', '__init__ close'),
    ('log_samples', '__init__ log_metrics log_metrics close'),
    ('close', '__init__ log_metrics log_metrics log_samples'),
  ],
)
def test_a_failure_is_one_warning_and_the_tracker_receives_nothing_more(
  tmp_path, monkeypatch, caplog, method, calls
):
  monkeypatch.setattr(Memory, 'fails', method)
  log_two_steps(tmp_path)
  assert [name for name, *_ in RECORDED] == calls.split()
  (warning,) = warnings_of(caplog)
  assert (
    f'{path_of(Memory)} receives no more entries' in warning
    and 'OSError: no route' in warning
  )
  assert len((tmp_path / 'metrics.jsonl').read_text('utf-8').splitlines()) == 2


def test_a_user_error_stops_the_start_and_a_hanging_tracker_does_not(tmp_path, caplog):
  with pytest.raises(UserError, match='log in first'):
    log_two_steps(tmp_path, Erroneous)
  with pytest.raises(
    UserError, match='the tracker no_such_module:Class cannot be imported'
  ):
    check_run(
      Config.from_dict({'train': {'trackers': ('no_such_module:Class',)}}), tmp_path
    )
  with pytest.raises(UserError, match=r'train\.trackers must be MODULE:NAME'):
    Config.from_dict({'train': {'trackers': ('wandb',)}})
  log_two_steps(tmp_path, Deaf, grace_seconds=0.4)
  # Where the machine is slow, TensorBoard is not done in that time either.
  (warning,) = (text for text in warnings_of(caplog) if TENSORBOARD not in text)
  assert f'{path_of(Deaf)} did not finish within 0.1 seconds' in warning


def test_trackers_are_closed_if_another_one_raises_a_user_error(tmp_path):
  with (
    pytest.raises(UserError, match='log in first') as caught,
    logging_to(tmp_path, trackers=(path_of(Memory), path_of(Erroneous))),
  ):
    raise AssertionError('the run began')
  assert RECORDED[-1] == ('close', caught.value)


def test_trackers_are_closed_if_a_signal_comes_while_another_is_made(
  default_signal_handlers, tmp_path
):
  class Interrupting(Deaf):
    def __init__(self, *_):
      _thread.interrupt_main()
      threading.Event().wait(60)

  with pytest.raises(KeyboardInterrupt):
    Trackers({'a': Memory, 'b': Interrupting}, (Config(), tmp_path, 0), 1.0)
  assert RECORDED[-1][0] == 'close' and isinstance(RECORDED[-1][1], KeyboardInterrupt)


def test_a_tracker_that_exits_its_thread_is_dropped_and_the_run_continues(
  tmp_path,
):
  class Leaving(Memory):
    def log_metrics(self, *_):
      raise SystemExit(1)

  trackers_of_the_run = Trackers({'a': Leaving}, (Config(), tmp_path, 0), 9.0)
  trackers_of_the_run.notify('log_metrics', 1, {})
  trackers_of_the_run.close(None)
  assert isinstance(RECORDED[-1][1], SystemExit)


def test_trackers_share_the_time_that_training_waits(caplog):
  slow = Trackers({str(number): Deaf for number in range(9)}, (), 0.5)
  slow.notify('log_metrics', 1, {})
  started = time.monotonic()
  slow.close(None)
  assert time.monotonic() - started < 3
  assert len(warnings_of(caplog)) == 9


def test_the_example_of_the_docs_writes_a_row_for_each_evaluation(
  tmp_path, doc_plugins, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  config = Config()
  scores = plugins.load('my_trackers:Scores', 'tracker')
  made = Trackers({'scores': scores}, (config, tmp_path / 'mine', 0), 9.0)
  for values in ({'train/loss': 2.0}, {'valid/loss': 3.0, 'valid/bleu': 7.0}):
    made.notify('log_metrics', 5, values)
  made.notify('log_samples', 5, [SAMPLE])  # It has no such method.
  made.close(None)
  with open('scores.csv', encoding='utf-8', newline='') as file:
    assert list(csv.reader(file)) == [['mine', '0.0007', '5', '3.0', '7.0']]


def test_the_example_of_the_docs_traces_the_devices_between_two_lines(
  tmp_path, doc_plugins
):
  trace = plugins.load('my_traces:Trace', 'tracker')
  made = Trackers({'trace': trace}, (Config(), tmp_path, 0), 120.0)
  for step in (90, 100, 110, 120):
    made.notify('log_metrics', step, {'train/loss': 2.0})
  made.close(None)
  (path,) = tmp_path.glob('tensorboard/plugins/profile/*/perfetto_trace.json.gz')
  assert path.stat().st_size


@pytest.mark.long
def test_a_run_has_the_same_bits_with_a_tracker(model, tmp_path):
  run(model, tmp_path / 'without')
  run(
    model,
    tmp_path / 'with',
    trackers=(path_of(Memory), path_of(Deaf)),
    grace_seconds=0.4,
  )
  assert rows_of(tmp_path / 'with') == rows_of(tmp_path / 'without')
  jax.tree.map(
    np.testing.assert_array_equal,
    final_state(tmp_path / 'with'),
    final_state(tmp_path / 'without'),
  )
  assert [(name, step) for name, step, *_ in RECORDED if name == 'log_samples'] == [
    ('log_samples', 5),
    ('log_samples', 10),
    ('log_samples', 12),
  ]
