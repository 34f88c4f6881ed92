"""Reporters are told of a run in their order, and none of their faults changes the run."""

import _thread
import csv
import threading
import time

import jax
import numpy as np
import pytest

from tests.experiment.test_report import add as add_update
from tests.experiment.test_report import evaluated, reporting_to
from tests.experiment.tiny_runs import final_state, rows_of, run
from transformer import plugins
from transformer.config import Config
from transformer.errors import Preempted, UserError
from transformer.experiment.preparation import check_run
from transformer.experiment.reporters import Reporters, Sample
from transformer.experiment.tensorboard import TENSORBOARD

SAMPLE = Sample('a', 'b', 'c')
TOLD = []


class Memory:
  """Keeps what it is told; fails where it is asked to."""

  fails = ''

  def __init__(self, config, workdir, step):
    self.told('__init__', config.train.steps, workdir.name, step)

  def told(self, method, *arguments):
    if method == self.fails:
      raise OSError('no route')
    TOLD.append((method, *arguments))

  def numbers(self, step, values):
    self.told('numbers', step, values)

  def samples(self, step, samples):
    self.told('samples', step, samples)

  def close(self, error):
    self.told('close', error)


class Mistaken(Memory):
  def __init__(self, *_):
    raise UserError('log in first')


class Greedy:
  """Empties what it is told."""

  def __init__(self, *_):
    self.numbers = lambda step, values: values.clear()


class Deaf:
  def __init__(self, *_):
    self.numbers = lambda *_: threading.Event().wait(60)


@pytest.fixture(autouse=True)
def told():
  TOLD.clear()
  return TOLD


def path_of(cls):
  return f'{__name__}:{cls.__name__}'


def warnings_of(caplog):
  return [record.message for record in caplog.records if record.levelname == 'WARNING']


def report_two_steps(workdir, cls=Memory, **settings):
  with reporting_to(workdir, report=(path_of(cls),), **settings) as report:
    add_update(report, 1)
    evaluated(report, 2, 7.0, [SAMPLE])


def test_a_reporter_is_told_of_lines_and_samples_in_their_order(tmp_path):
  report_two_steps(tmp_path)
  (first, updates, evaluation, *rest) = TOLD
  assert first == ('__init__', 99, tmp_path.name, 0)
  assert updates[:2] == ('numbers', 1) and updates[2]['train/loss'] == 2.0
  assert evaluation == ('numbers', 2, {'valid/loss': 3.0, 'valid/bleu': 7.0})
  assert rest == [('samples', 2, [SAMPLE]), ('close', None)]


def test_a_reporter_knows_why_a_run_stops(tmp_path):
  stop = Preempted('stopped')
  with pytest.raises(Preempted), reporting_to(tmp_path, report=(path_of(Memory),)):
    raise stop
  assert TOLD[-1] == ('close', stop)


def test_a_reporter_that_changes_what_it_is_told_changes_nothing_else(tmp_path):
  values = {'valid/loss': 3.0}
  with reporting_to(tmp_path, report=(path_of(Greedy), path_of(Memory))) as report:
    report._write(1, values, {})
  assert values == {'valid/loss': 3.0} and TOLD[1] == ('numbers', 1, values)


@pytest.mark.parametrize(
  ('method', 'calls'),
  [
    ('__init__', ''),
    ('numbers', '__init__ close'),
    ('samples', '__init__ numbers numbers close'),
    ('close', '__init__ numbers numbers samples'),
  ],
)
def test_a_fault_is_one_warning_and_the_reporter_gets_nothing_more(
  tmp_path, monkeypatch, caplog, method, calls
):
  monkeypatch.setattr(Memory, 'fails', method)
  report_two_steps(tmp_path)
  assert [name for name, *_ in TOLD] == calls.split()
  (warning,) = warnings_of(caplog)
  assert (
    f'{path_of(Memory)} receives no more lines' in warning
    and 'OSError: no route' in warning
  )
  assert len((tmp_path / 'metrics.jsonl').read_text('utf-8').splitlines()) == 2


def test_a_mistake_ends_the_start_and_a_reporter_that_hangs_ends_nothing(
  tmp_path, caplog
):
  with pytest.raises(UserError, match='log in first'):
    report_two_steps(tmp_path, Mistaken)
  with pytest.raises(
    UserError, match='the reporter no_such_module:Class cannot be imported'
  ):
    check_run(
      Config.from_dict({'train': {'report': ('no_such_module:Class',)}}), tmp_path
    )
  with pytest.raises(UserError, match=r'train\.report must be MODULE:NAME'):
    Config.from_dict({'train': {'report': ('wandb',)}})
  report_two_steps(tmp_path, Deaf, grace_seconds=0.4)
  # Where the machine is slow, TensorBoard is not done in that time either.
  (warning,) = (text for text in warnings_of(caplog) if TENSORBOARD not in text)
  assert f'{path_of(Deaf)} did not finish within 0.1 seconds' in warning


def test_reporters_are_closed_if_another_one_makes_a_mistake(tmp_path):
  with (
    pytest.raises(UserError, match='log in first') as caught,
    reporting_to(tmp_path, report=(path_of(Memory), path_of(Mistaken))),
  ):
    raise AssertionError('the run began')
  assert TOLD[-1] == ('close', caught.value)


def test_reporters_are_closed_if_a_signal_comes_while_another_is_made(
  hearing, tmp_path
):
  class Interrupting(Deaf):
    def __init__(self, *_):
      _thread.interrupt_main()
      threading.Event().wait(60)

  with pytest.raises(KeyboardInterrupt):
    Reporters({'a': Memory, 'b': Interrupting}, (Config(), tmp_path, 0), 1.0)
  assert TOLD[-1][0] == 'close' and isinstance(TOLD[-1][1], KeyboardInterrupt)


def test_a_reporter_that_ends_its_thread_knows_that_the_run_goes_on_without_it(
  tmp_path,
):
  class Leaving(Memory):
    def numbers(self, *_):
      raise SystemExit(1)

  reporters_of_the_run = Reporters({'a': Leaving}, (Config(), tmp_path, 0), 9.0)
  reporters_of_the_run.tell('numbers', 1, {})
  reporters_of_the_run.end(None)
  assert isinstance(TOLD[-1][1], SystemExit)


def test_reporters_share_the_time_that_training_waits(caplog):
  slow = Reporters({str(number): Deaf for number in range(9)}, (), 0.5)
  slow.tell('numbers', 1, {})
  started = time.monotonic()
  slow.end(None)
  assert time.monotonic() - started < 3
  assert len(warnings_of(caplog)) == 9


def test_the_example_of_the_docs_writes_a_row_for_each_evaluation(
  tmp_path, own_parts, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  config = Config()
  scores = plugins.load('my_reports:Scores', 'reporter')
  made = Reporters({'scores': scores}, (config, tmp_path / 'mine', 0), 9.0)
  for values in ({'train/loss': 2.0}, {'valid/loss': 3.0, 'valid/bleu': 7.0}):
    made.tell('numbers', 5, values)
  made.tell('samples', 5, [SAMPLE])  # It has no such method.
  made.end(None)
  with open('scores.csv', encoding='utf-8', newline='') as file:
    assert list(csv.reader(file)) == [['mine', '0.0007', '5', '3.0', '7.0']]


def test_the_example_of_the_docs_traces_the_devices_between_two_lines(
  tmp_path, own_parts
):
  trace = plugins.load('my_traces:Trace', 'reporter')
  made = Reporters({'trace': trace}, (Config(), tmp_path, 0), 120.0)
  for step in (90, 100, 110, 120):
    made.tell('numbers', step, {'train/loss': 2.0})
  made.end(None)
  (path,) = tmp_path.glob('tensorboard/plugins/profile/*/perfetto_trace.json.gz')
  assert path.stat().st_size


@pytest.mark.long
def test_a_run_has_the_same_bits_with_a_reporter(model, tmp_path):
  run(model, tmp_path / 'without')
  run(
    model, tmp_path / 'with', report=(path_of(Memory), path_of(Deaf)), grace_seconds=0.4
  )
  assert rows_of(tmp_path / 'with') == rows_of(tmp_path / 'without')
  jax.tree.map(
    np.testing.assert_array_equal,
    final_state(tmp_path / 'with'),
    final_state(tmp_path / 'without'),
  )
  assert [(name, step) for name, step, *_ in TOLD if name == 'samples'] == [
    ('samples', 5),
    ('samples', 10),
    ('samples', 12),
  ]
