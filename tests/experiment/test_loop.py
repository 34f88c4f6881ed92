"""Runs are resumed bit for bit, evaluated, and ended by patience."""

import dataclasses
import json
import re
import shutil
import time

import chex
import jax
import numpy as np
import pytest

from tests.experiment.tiny_runs import ADAM, final_state, rows_of, run, size_of
from tests.tiny_training import Settings, make_task, train_tiny
from transformer.errors import UserError
from transformer.experiment.validation import Validation
from transformer.runs.checkpoints import AVERAGE, PARAMS, Checkpoints
from transformer.training.compilation import Programs
from transformer.training.config import OptimizerConfig
from transformer.training.step import init_params


@pytest.fixture(scope='module')
def uninterrupted(model, tmp_path_factory):
  """Returns the directory and the outcome of a run without interruption."""
  workdir = tmp_path_factory.mktemp('uninterrupted')
  outcome = run(model, workdir)
  return workdir, outcome


@pytest.mark.long(but=('7',))
@pytest.mark.parametrize('fatal', [3, 7, 11])
def test_a_resumed_run_equals_the_uninterrupted_run_bit_for_bit(
    model, uninterrupted, tmp_path, fatal):
  with pytest.raises(InterruptedError):
    run(model, tmp_path, fatal=fatal)
  outcome = run(model, tmp_path)
  whole, whole_outcome = uninterrupted
  chex.assert_trees_all_equal(final_state(tmp_path), final_state(whole))
  assert rows_of(tmp_path) == rows_of(whole)
  assert outcome == whole_outcome._replace(resumed_from={3: None, 7: 5, 11: 10}[fatal])


def test_a_run_with_a_damaged_last_checkpoint_ends_the_same(
    model, uninterrupted, tmp_path):
  whole, whole_outcome = uninterrupted
  shutil.copytree(whole, tmp_path / 'run')
  (tmp_path / 'run' / 'checkpoints' / '12' / 'rest' / 'manifest.ocdbt').unlink()
  outcome = run(model, tmp_path / 'run')
  chex.assert_trees_all_equal(final_state(tmp_path / 'run'), final_state(whole))
  assert rows_of(tmp_path / 'run') == rows_of(whole)
  assert outcome == whole_outcome._replace(resumed_from=10)


@pytest.mark.parametrize('failure', [RuntimeError('out of memory'), None])
def test_an_evaluation_that_fails_loses_no_update(
    model, uninterrupted, tmp_path, caplog, failure):
  def train(working):
    made = []

    def validate(params):
      made.append(1)
      if len(made) <= working:
        return Validation(size_of(params), more={'f': 3.0})
      if failure:
        raise failure
      return Validation(size_of(params), failures=['m:f failed'])

    settings = Settings()
    settings = settings._replace(train=dataclasses.replace(
        settings.train, valid_metric='m:f', best_by='' if failure else 'f'))
    return train_tiny(settings, make_task(model, validate=validate), tmp_path)

  for working in (1, 0):  # The second start fails at the same evaluation.
    with pytest.raises(RuntimeError if failure else UserError) as raised:
      train(working)
    assert failure or all(part in str(raised.value) for part in ('step 10 is saved', 'm:f'))
  assert [each.message for each in caplog.records if 'm:f failed' in each.message] == (
      [] if failure else ['step 10, valid: m:f failed'] * 2)
  outcome = train(9)
  assert outcome.resumed_from == 10 and outcome.step == 12
  whole, state = final_state(uninterrupted[0]), final_state(tmp_path)
  assert [each['step'] for each in state['history']['evaluations']] == [5, 10, 12]
  for part in ('params', 'rest'):
    chex.assert_trees_all_equal(state[part], whole[part])


def test_a_metric_that_fails_ends_no_run_that_it_does_not_decide(model, uninterrupted, tmp_path,
                                                               caplog):
  task = make_task(model, validate=lambda params: Validation(
      size_of(params), translations=['a', 'b'], failures=['no f']))
  (tmp_path / 'eval' / 'valid.5.txt').mkdir(parents=True)  # Nor does a folder in the way.
  train_tiny(Settings(), task, tmp_path)
  assert (tmp_path / 'eval' / 'valid.12.txt').read_text() == 'a\nb\n'
  assert 'no translations in eval' in caplog.text
  assert [each.message for each in caplog.records if 'no f' in each.message] == [
      f'step {step}, valid: no f' for step in (5, 10, 12)]
  chex.assert_trees_all_equal(final_state(tmp_path), final_state(uninterrupted[0]))


@pytest.mark.long
def test_the_moving_average_is_resumed_and_evaluated(model, uninterrupted, tmp_path):
  whole, parts = tmp_path / 'whole', tmp_path / 'parts'
  run(model, whole, ema_decay=0.9)
  with pytest.raises(InterruptedError):
    run(model, parts, ema_decay=0.9, fatal=7)
  run(model, parts, ema_decay=0.9)
  state = final_state(whole)
  chex.assert_trees_all_equal(final_state(parts), state)
  assert rows_of(parts) == rows_of(whole)
  plain = final_state(uninterrupted[0])
  assert 'average' not in plain
  chex.assert_trees_all_equal(state['params'], plain['params'])
  assert rows_of(whole)[-1]['valid/bleu'] == size_of(state['average'])
  like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype),
                      jax.eval_shape(lambda: init_params(model, 0)))
  checkpoints = Checkpoints(whole / 'checkpoints', read_only=True)
  for item in (PARAMS, AVERAGE):
    chex.assert_trees_all_equal(checkpoints.average_params([12], like, item), state[item])
  checkpoints.close()


# Of an update that is not computed.
METRICS = dict.fromkeys(('loss', 'nll', 'weight', 'gradient_norm', 'source_tokens'), 1.0)


def test_a_run_begins_from_its_seed_and_evaluates_the_moving_average(model, tmp_path):
  def train_step(state, _):
    average = jax.tree.map(lambda leaf: 2 * leaf, state.average)
    return state._replace(step=state.step + 1, average=average), METRICS

  def eval_step(params, _):
    return {'nll': size_of(params), 'weight': 1.0}

  settings = Settings(train=dataclasses.replace(Settings().train, steps=1, ema_decay=0.9))
  train_tiny(settings, make_task(model, bleu=size_of), tmp_path,
             programs=Programs(train_step, eval_step))
  first = jax.jit(lambda: init_params(model, settings.seed))()
  found, wanted = rows_of(tmp_path)[-1], pytest.approx(2 * size_of(first), rel=1e-6)
  assert found['valid/loss'] == found['valid/bleu'] == wanted


def test_the_speed_of_a_run_is_that_of_its_updates_alone(model, tmp_path, monkeypatch):
  now = 0.0

  def train_step(state, _):
    nonlocal now
    now += 2.0
    return state._replace(step=state.step + 1), METRICS

  def evaluate(_):
    nonlocal now
    now += 50.0
    return 1.0

  settings = Settings(train=dataclasses.replace(Settings().train, steps=3, log_every=3,
                                                eval_every=1))
  monkeypatch.setattr(time, 'perf_counter', lambda: now)
  train_tiny(settings, make_task(model, bleu=evaluate), tmp_path,
             programs=Programs(train_step, lambda *_: METRICS))
  lines = map(json.loads, (tmp_path / 'metrics.jsonl').read_text('utf-8').splitlines())
  assert [line['tokens_per_second'] for line in lines if 'train/loss' in line] == [0.5]


@pytest.mark.long
def test_the_state_of_muon_is_resumed_bit_for_bit(model, uninterrupted, tmp_path):
  muon = dataclasses.replace(ADAM, algorithm='muon', weight_decay=0.1)
  whole, parts = tmp_path / 'whole', tmp_path / 'parts'
  run(model, whole, optimizer=muon)
  with pytest.raises(InterruptedError):
    run(model, parts, optimizer=muon, fatal=7)
  run(model, parts, optimizer=muon)
  chex.assert_trees_all_equal(final_state(parts), final_state(whole))
  assert rows_of(parts) == rows_of(whole) != rows_of(uninterrupted[0])


def test_finished_run_is_left_alone(model, uninterrupted):
  workdir, outcome = uninterrupted
  before = rows_of(workdir), final_state(workdir)
  again = run(model, workdir, fatal=0)
  assert outcome.worked
  assert again == outcome._replace(resumed_from=12, worked=False)
  assert again.step == 12
  assert rows_of(workdir) == before[0]
  chex.assert_trees_all_equal(final_state(workdir), before[1])


def test_metrics_have_a_line_for_each_log_and_each_evaluation(uninterrupted):
  rows = rows_of(uninterrupted[0])
  assert [(row['step'], 'train/loss' in row, 'valid/bleu' in row) for row in rows] == [
      (4, True, False), (5, False, True), (8, True, False), (10, False, True),
      (12, True, False), (12, False, True)]
  for row in rows:
    if 'train/loss' in row:
      assert row['train/fill'] == pytest.approx(8 / 11)
      assert row['train/perplexity'] < np.exp(row['train/loss'] / 0.9)
    else:
      assert row['valid/perplexity'] == pytest.approx(np.exp(row['valid/loss']))


def test_patience_ends_a_run_for_good(model, tmp_path, caplog):
  caplog.set_level('INFO')
  outcome = run(model, tmp_path, steps=12, eval_every=2, patience=2, scores=[5, 6, 3, 4, 9, 9])
  assert outcome.out_of_patience
  said, = (each.message for each in caplog.records if 'out of patience' in each.message)
  loss, = (row['valid/loss'] for row in rows_of(tmp_path)
           if row['step'] == 4 and 'valid/loss' in row)
  assert said == ('out of patience at step 8: none of the last 2 evaluations (train.patience) was '
                  f'better than that of step 4, with validation BLEU 6.00 and loss {loss:.3f}')
  assert (outcome.step, outcome.best_step) == (8, 4)
  again = run(model, tmp_path, steps=12, eval_every=2, patience=2, fatal=0)
  assert (again.step, again.out_of_patience) == (8, True)
  more = run(model, tmp_path, steps=12, eval_every=2, patience=3, scores=[7, 8])
  assert (more.step, more.best_step, more.resumed_from) == (12, 12, 8)


@pytest.mark.long
def test_training_starts_from_the_initial_parameters(model, tmp_path):
  settings = Settings(train=dataclasses.replace(
      Settings().train, steps=1, eval_every=1, checkpoint_every=1))
  other = init_params(model, 99)
  chex.assert_trees_all_equal_shapes(other, init_params(model, settings.seed))
  seen = []
  train_tiny(settings, make_task(
      model, bleu=lambda params: seen.append(jax.device_get(params)) or 0.0,
      initial_params=lambda: jax.device_put(other, jax.devices()[1])), tmp_path)
  # One step of Adam moves a parameter by no more than the learning rate.
  change = jax.tree.map(lambda a, b: np.abs(a - b).max(), seen[0], jax.device_get(other))
  assert max(jax.tree.leaves(change)) <= 0.0101


@pytest.mark.long
def test_a_run_killed_before_its_first_checkpoint_starts_from_the_same_parameters(
    model, tmp_path):
  asked = []

  def initial_params():
    asked.append(1)
    return init_params(model, 99)

  run(model, tmp_path / 'whole', initial_params=initial_params)
  with pytest.raises(InterruptedError):
    run(model, tmp_path / 'killed', fatal=3, initial_params=initial_params)
  with pytest.raises(InterruptedError):
    run(model, tmp_path / 'killed', fatal=7, initial_params=initial_params)
  assert len(asked) == 3
  run(model, tmp_path / 'killed', initial_params=initial_params)
  assert len(asked) == 3  # It resumes from its checkpoint.
  chex.assert_trees_all_equal(final_state(tmp_path / 'killed'), final_state(tmp_path / 'whole'))


@pytest.mark.long
def test_a_loss_that_is_not_finite_stops_the_run_before_it_is_saved(model, tmp_path):
  wild = OptimizerConfig(schedule='constant', peak_learning_rate=1e30, warmup_steps=1)
  settings = Settings(optimizer=wild, train=dataclasses.replace(Settings().train,
                                                                checkpoint_every=1))
  with pytest.raises(UserError, match='nothing of it was saved') as error:
    train_tiny(settings, make_task(model), tmp_path)
  step = int(re.match(r'the loss of step (\d+) is (nan|inf)', str(error.value))[1])
  checkpoints = Checkpoints(tmp_path / 'checkpoints', read_only=True)
  assert checkpoints.steps()[-1] == step - 1
  assert 'null' not in (tmp_path / 'metrics.jsonl').read_text()
  checkpoints.close()


def test_torn_and_later_lines_are_cut_on_resuming(model, uninterrupted, tmp_path):
  with pytest.raises(InterruptedError):
    run(model, tmp_path, fatal=7)
  with (tmp_path / 'metrics.jsonl').open('a') as lines:
    lines.write('{"step": 6, "train/loss": 1.0}\n{"step": 7, "tra')
  run(model, tmp_path)
  assert rows_of(tmp_path) == rows_of(uninterrupted[0])
