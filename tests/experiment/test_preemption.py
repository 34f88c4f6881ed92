"""Runs that a signal stops, and that end as if they had not been stopped."""

import contextlib
import os
import signal

import chex
import pytest

from tests.experiment import tiny_runs
from tests.experiment.tiny_runs import final_state, rows_of, size_of, steps_in
from tests.tiny_training import NumberedBatches, TinyValidation
from transformer.errors import StoppedBySignal
from transformer.system.signals import Signals


class Signalled(NumberedBatches):
  """Batches that send a signal before one of them."""

  def __init__(self, at, number=signal.SIGTERM):
    super().__init__()
    self._at, self._number = at, number

  def iterate(self, start, stop):
    for step, batch in zip(
      range(start, stop), super().iterate(start, stop), strict=True
    ):
      if step == self._at:
        os.kill(os.getpid(), self._number)
      yield batch


def run(model, workdir, *, at_score=None, rising=True, **options):
  """Trains; a signal comes during evaluation number `at_score`."""
  scored = 0

  def score(params):
    nonlocal scored
    scored += 1
    if scored == at_score:
      os.kill(os.getpid(), signal.SIGTERM)
    return size_of(params) if rising else 1e6 / size_of(params)

  with Signals() as signals:
    return tiny_runs.run(
      model,
      workdir,
      validation=TinyValidation(score),
      signals=signals,
      ema_decay=0.9,
      **options,
    )


@pytest.fixture(scope='module')
def whole(model, tmp_path_factory):
  """Returns the directory and the outcome of a run without signals."""
  workdir = tmp_path_factory.mktemp('whole')
  return workdir, run(model, workdir)


def assert_same(workdir, whole):
  chex.assert_trees_all_equal(final_state(workdir), final_state(whole))
  assert rows_of(workdir) == rows_of(whole)
  assert steps_in(workdir / 'checkpoints') == steps_in(whole / 'checkpoints')


@pytest.mark.long(but=('10-9',))
@pytest.mark.parametrize(
  ('number', 'step'),
  [
    (signal.SIGTERM, 1),
    (signal.SIGINT, 7),
    (signal.SIGUSR1, 9),
    (signal.SIGTERM, 5),  # An evaluation and a regular checkpoint are due.
    (
      signal.SIGTERM,
      12,
    ),  # After the last step, only the evaluation can be interrupted.
  ],
)
def test_a_signal_saves_the_step_in_progress(
  default_signal_handlers, model, whole, tmp_path, number, step
):
  with pytest.raises(
    StoppedBySignal, match=rf'stopped by {number.name} after step {step} \(saved'
  ):
    run(model, tmp_path, batches=Signalled(step - 1, number))
  assert steps_in(tmp_path / 'checkpoints')[-1] == step
  assert run(model, tmp_path) == whole[1]._replace(resumed_from=step)
  assert_same(tmp_path, whole[0])


@pytest.mark.long
@pytest.mark.parametrize(
  ('evaluation', 'step', 'before'), [(1, 5, []), (3, 12, [5, 10])]
)
def test_an_interrupted_evaluation_is_repeated(
  model, whole, tmp_path, evaluation, step, before
):
  for number in (
    evaluation,
    1,
  ):  # A second signal during the same evaluation changes nothing.
    with pytest.raises(StoppedBySignal, match='stopped by SIGTERM'):
      run(model, tmp_path, at_score=number)
    assert not [
      row for row in rows_of(tmp_path) if row['step'] == step and 'valid/bleu' in row
    ]
    assert steps_in(tmp_path / 'checkpoints') == [*before, step]
  assert run(model, tmp_path) == whole[1]._replace(resumed_from=step)
  assert_same(tmp_path, whole[0])


@pytest.mark.long
def test_a_kill_after_a_repeated_evaluation_writes_no_line_twice(model, tmp_path):
  # Parameters grow, so no later evaluation is better than the first and is saved.
  regular = {'checkpoint_every': 100, 'steps': 11, 'eval_every': 5, 'rising': False}
  run(model, tmp_path / 'whole', **regular)
  with pytest.raises(StoppedBySignal, match='stopped by SIGTERM'):
    run(model, tmp_path / 'parts', at_score=2, **regular)
  with pytest.raises(InterruptedError):
    run(model, tmp_path / 'parts', fatal=10, **regular)
  assert [
    row['step'] for row in rows_of(tmp_path / 'parts') if 'valid/bleu' in row
  ] == [
    5,
    10,
  ]
  run(model, tmp_path / 'parts', **regular)
  assert_same(tmp_path / 'parts', tmp_path / 'whole')


@pytest.mark.long(but=('6',))
@pytest.mark.parametrize(
  'fewer',
  [{'steps': 6}, {'steps': 7}, {'patience': 1, 'rising': False}],
  ids=['6', '7', 'patience'],
)
def test_a_run_that_ends_where_a_signal_stopped_it_is_evaluated_and_saved(
  model, tmp_path, fewer
):
  start = {
    'eval_every': 3,
    'checkpoint_every': 100,
    'rising': fewer.get('rising', True),
  }
  with pytest.raises(StoppedBySignal, match='after step 7'):
    run(model, tmp_path, batches=Signalled(6), **start)
  outcome = run(model, tmp_path, **start | fewer)
  assert outcome.did_train and outcome.step == 7
  assert steps_in(tmp_path / 'checkpoints')[-1] == 7
  assert [row['step'] for row in rows_of(tmp_path) if 'valid/bleu' in row] == [3, 6, 7]
  again = run(model, tmp_path, fatal=0, **start | fewer)
  assert not again.did_train and again.step == 7


def test_a_signal_before_the_first_step_saves_nothing(model, tmp_path):
  with Signals() as signals:
    with contextlib.suppress(StoppedBySignal):  # Finalizers swallow exceptions too.
      os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(StoppedBySignal, match='stopped by SIGTERM; rerun the command'):
      tiny_runs.run(model, tmp_path, signals=signals)
  assert steps_in(tmp_path / 'checkpoints') == []
