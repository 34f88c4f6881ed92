"""Runs are resumed bit for bit, evaluated, saved, and ended by patience."""

import dataclasses
import errno
import json
import os
import shutil
import threading
import time

import chex
import jax
import numpy as np
import pytest

from tests.experiment.tiny_runs import final_state, rows_of, run, size_of
from tests.tiny_training import NumberedBatches, Settings, TinyValidation, train_tiny
from transformer.config import Config, flatten
from transformer.errors import UserError
from transformer.model.transformer import init_params
from transformer.runs import resuming, sealing
from transformer.runs.checkpoint_writer import CheckpointWriter
from transformer.runs.checkpoints import Checkpoints


@pytest.fixture(scope='module')
def uninterrupted(model, tmp_path_factory):
  """Returns the directory and the outcome of a run without interruption."""
  workdir = tmp_path_factory.mktemp('uninterrupted')
  return workdir, run(model, workdir)


@pytest.mark.long(but=('7',))
@pytest.mark.parametrize('fatal', [3, 7, 11])
def test_a_resumed_run_equals_the_uninterrupted_run_bit_for_bit(
  model, uninterrupted, tmp_path, fatal
):
  with pytest.raises(InterruptedError):
    run(model, tmp_path, fatal=fatal)
  with (tmp_path / 'metrics.jsonl').open(
    'a'
  ) as lines:  # Incomplete and later lines are removed.
    lines.write('{"step": 6, "train/loss": 1.0}\n{"step": 7, "tra')
  outcome = run(model, tmp_path)
  whole, whole_outcome = uninterrupted
  chex.assert_trees_all_equal(final_state(tmp_path), final_state(whole))
  assert rows_of(tmp_path) == rows_of(whole)
  assert outcome == whole_outcome._replace(resumed_from={3: None, 7: 5, 11: 10}[fatal])


def test_a_run_with_a_damaged_last_checkpoint_ends_the_same(
  model, uninterrupted, tmp_path
):
  whole, whole_outcome = uninterrupted
  shutil.copytree(whole, tmp_path / 'run')
  (tmp_path / 'run' / 'checkpoints' / '12' / 'rest' / 'manifest.ocdbt').unlink()
  with pytest.raises(InterruptedError):
    run(model, tmp_path / 'run', fatal=10)
  outcome = run(model, tmp_path / 'run')
  chex.assert_trees_all_equal(final_state(tmp_path / 'run'), final_state(whole))
  assert rows_of(tmp_path / 'run') == rows_of(whole)
  assert outcome == whole_outcome._replace(resumed_from=10)


@pytest.mark.parametrize('failure', [RuntimeError('out of memory'), None])
def test_a_failed_evaluation_loses_no_training_step(
  model, uninterrupted, tmp_path, failure
):
  class Failing(TinyValidation):
    def __init__(self, working):
      super().__init__(size_of)
      self._working = working

    def evaluate(self, eval_step, params):
      evaluation = super().evaluate(eval_step, params)
      self._working -= 1
      if self._working >= 0:
        evaluation.values['valid/f'] = 3.0
      elif failure:
        raise failure
      return evaluation

  def train(working):
    best_by = '' if failure else 'f'
    return run(
      model, tmp_path, validation=Failing(working), valid_metric='m:f', best_by=best_by
    )

  for working in (1, 0):  # The second start fails at the same evaluation.
    with pytest.raises(RuntimeError if failure else UserError) as raised:
      train(working)
    assert failure or all(
      part in str(raised.value)
      for part in (
        "best_by must be one of loss, bleu; got 'f'",
        'valid_metric',
      )
    )
  outcome = train(9)
  assert outcome.resumed_from == 10 and outcome.step == 12
  whole, state = final_state(uninterrupted[0]), final_state(tmp_path)
  assert [evaluation['step'] for evaluation in state['history']['evaluations']] == [
    5,
    10,
    12,
  ]
  for part in ('params', 'rest'):
    chex.assert_trees_all_equal(state[part], whole[part])


def test_translations_are_written_and_a_folder_in_the_way_ends_no_run(
  model, tmp_path, caplog
):
  (tmp_path / 'eval' / 'valid.5.txt').mkdir(parents=True)
  run(
    model,
    tmp_path,
    validation=TinyValidation(size_of, translations={'valid': ['a', 'b']}),
  )
  assert (tmp_path / 'eval' / 'valid.12.txt').read_text() == 'a\nb\n'
  assert 'no translations in eval' in caplog.text


# Of a training step that is not computed.
METRICS = dict.fromkeys(
  ('loss', 'nll', 'weight', 'gradient_norm', 'source_tokens'), 1.0
)


def test_a_run_begins_from_its_seed_and_evaluates_the_moving_average(model, tmp_path):
  def train_step(state, _):
    average = jax.tree.map(lambda leaf: 2 * leaf, state.average)
    return state._replace(step=state.step + 1, average=average), METRICS

  def eval_step(params, _):
    return {'nll': size_of(params), 'weight': 1.0}

  settings = Settings(
    train=dataclasses.replace(Settings().train, steps=1, ema_decay=0.9)
  )
  train_tiny(settings, model, tmp_path, bleu=size_of, programs=(train_step, eval_step))
  first = jax.jit(lambda: init_params(model, settings.seed))()
  line, wanted = rows_of(tmp_path)[-1], pytest.approx(2 * size_of(first), rel=1e-6)
  assert line['valid/loss'] == line['valid/bleu'] == wanted


def test_the_speed_of_a_run_counts_only_its_training_steps(
  model, tmp_path, monkeypatch
):
  now = 0.0

  def train_step(state, _):
    nonlocal now
    now += 2.0
    return state._replace(step=state.step + 1), METRICS

  def evaluate(_):
    nonlocal now
    now += 50.0
    return 1.0

  settings = Settings(
    train=dataclasses.replace(Settings().train, steps=3, log_every=3, eval_every=1)
  )
  monkeypatch.setattr(time, 'perf_counter', lambda: now)
  train_tiny(
    settings, model, tmp_path, bleu=evaluate, programs=(train_step, lambda *_: METRICS)
  )
  lines = map(json.loads, (tmp_path / 'metrics.jsonl').read_text('utf-8').splitlines())
  assert [line['tokens_per_second'] for line in lines if 'train/loss' in line] == [0.5]


def test_a_finished_run_is_unchanged(model, uninterrupted):
  workdir, outcome = uninterrupted
  before = rows_of(workdir), final_state(workdir)
  assert outcome.did_train
  assert run(model, workdir, fatal=0) == outcome._replace(
    resumed_from=12, did_train=False
  )
  assert rows_of(workdir) == before[0]
  chex.assert_trees_all_equal(final_state(workdir), before[1])


def test_metrics_have_a_line_for_each_log_and_each_evaluation(uninterrupted):
  rows = rows_of(uninterrupted[0])
  assert [(row['step'], 'train/loss' in row, 'valid/bleu' in row) for row in rows] == [
    (4, True, False),
    (5, False, True),
    (8, True, False),
    (10, False, True),
    (12, True, False),
    (12, False, True),
  ]
  for row in rows:
    if 'train/loss' in row:
      assert row['train/fill'] == pytest.approx(8 / 11)
      assert row['train/perplexity'] < np.exp(row['train/loss'] / 0.9)


def test_patience_ends_a_run_for_good(model, tmp_path):
  options = {'steps': 12, 'eval_every': 2}
  outcome = run(model, tmp_path, patience=2, scores=[5, 6, 3, 4, 9, 9], **options)
  assert (outcome.step, outcome.best['step']) == (8, 4)
  again = run(model, tmp_path, patience=2, fatal=0, **options)
  assert (again.step, again.did_train) == (8, False)
  more = run(model, tmp_path, patience=3, scores=[7, 8], **options)
  assert (more.step, more.best['step'], more.resumed_from) == (12, 12, 8)


@pytest.mark.parametrize(
  ('best_by', 'losses', 'scores', 'best'),
  [
    ('', [5.0, 4.0, 4.5], [0, 0, 0], 2),  # Equal BLEU is decided by the lowest loss.
    ('loss', [5.0, 4.0, 4.5], [9, 7, 8], 2),
  ],
)
def test_the_best_step_follows_the_deciding_metric_everywhere(
  model, tmp_path, best_by, losses, scores, best
):
  evaluations = iter(zip(losses, scores, strict=True))

  class Given(TinyValidation):
    def evaluate(self, eval_step, params):
      loss, bleu = next(evaluations)
      evaluation = super().evaluate(eval_step, params)
      return evaluation._replace(values={'valid/loss': loss, 'valid/bleu': bleu})

  outcome = run(
    model,
    tmp_path,
    steps=3,
    eval_every=1,
    checkpoint_every=100,
    keep=1,
    best_by=best_by,
    validation=Given(),
  )
  assert outcome.best['step'] == best
  checkpoints = Checkpoints(tmp_path / 'checkpoints')
  assert checkpoints.steps == [2, 3] and checkpoints.resolve('best') == best


def test_a_failed_write_ends_the_run_before_the_next_checkpoint_is_due(
  model, tmp_path, monkeypatch
):
  failed, served = threading.Event(), []

  def fail(*_):
    failed.set()
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  class Waiting(NumberedBatches):
    def iterate(self, start, stop):
      for number, batch in enumerate(super().iterate(start, stop), start):
        if number > 40:
          assert failed.wait(60)
          time.sleep(0.1)  # Orbax's thread is still to end.
        served.append(number)
        yield batch

  monkeypatch.setattr(sealing, 'seal', fail)
  with pytest.raises(
    UserError, match=r'cannot write a checkpoint to .*No space left on'
  ):
    run(
      model, tmp_path, batches=Waiting(), steps=100, checkpoint_every=40, eval_every=100
    )
  assert max(served) < 79  # The next checkpoint is due after this batch.


def test_a_run_is_finished_only_after_its_last_checkpoint_is_written(
  model, tmp_path, monkeypatch
):
  seal, close, there = sealing.seal, CheckpointWriter.close, []

  def seal_slowly(*arguments):
    time.sleep(0.5)
    seal(*arguments)

  def close_later(checkpoints):  # After `train`.
    there.extend(os.listdir(tmp_path / 'checkpoints'))
    close(checkpoints)

  monkeypatch.setattr(sealing, 'seal', seal_slowly)
  monkeypatch.setattr(CheckpointWriter, 'close', close_later)
  run(model, tmp_path)
  assert '12' in there


def test_settings_that_decide_what_counts_may_not_change_on_resume():
  may, counted = 'train.valid_metric', 'train.max_consecutive_nonfinite'
  settings = flatten(Config().to_dict())

  def check(before, after):
    return resuming.check_same_settings(
      'run', {**settings, **before}, {**settings, **after}
    )

  for best_by in ('', 'loss', 'talks/bleu'):
    assert check(
      {'train.best_by': best_by, may: 'm:f'}, {'train.best_by': best_by, may: ''}
    )
  for before, after in ((0, 3), (3, 1)):
    check({counted: before}, {counted: after})
  with pytest.raises(UserError, match=r"train\.valid_metric was 'm:f', is now ''"):
    check(
      {'train.best_by': 'talks/f', may: 'm:f'}, {'train.best_by': 'talks/f', may: ''}
    )
  with pytest.raises(
    UserError, match=r'train\.max_consecutive_nonfinite was 3, is now 0'
  ):
    check({counted: 3}, {counted: 0})
