"""Runs that are stopped and resumed, scored, kept and given up."""

import dataclasses
import json
import os
import re
import shutil
import threading
import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.training.conftest import NumberedBatches, Settings, make_batch
from transformer.errors import UserError
from transformer.training import checkpoints as checkpoints_module
from transformer.training import loop
from transformer.training.checkpoints import AVERAGE, PARAMS, Checkpoints
from transformer.training.config import OptimizerConfig
from transformer.training.loop import train
from transformer.training.meter import WALL_CLOCK, Meter
from transformer.training.reporting import Reporter
from transformer.training.step import TrainState, init_params

ADAM = Settings().optimizer


def run(model, workdir, *, fatal=None, scores=None, initial_params=None,
        optimizer=ADAM, **changes):
  """Trains with a validation score that is scripted, or that depends on all parameters."""
  settings = Settings(optimizer)
  settings = settings._replace(train=dataclasses.replace(settings.train, **changes))
  remaining = iter(scores or ())

  def score(params):
    if scores:
      return next(remaining)
    return float(sum(np.abs(leaf).sum() for leaf in jax.tree.leaves(jax.device_get(params))))

  return train(settings, model, NumberedBatches(fatal), [make_batch(100)], score, workdir,
               initial_params)


def rows_of(workdir):
  """metrics.jsonl without what a clock decides."""
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  return [{name: value for name, value in json.loads(line).items() if name not in WALL_CLOCK}
          for line in lines]


def final_state(workdir):
  """Everything that the last checkpoint holds."""
  checkpoints = Checkpoints(workdir / 'checkpoints', read_only=True)
  last = checkpoints.steps()[-1]
  found = dict(checkpoints._manager.restore(last))
  checkpoints.close()
  found['history'].pop('log')  # What a clock decides is in the lines that it is of.
  return found


@pytest.fixture(scope='module')
def uninterrupted(model, tmp_path_factory):
  """A run that nothing happened to."""
  workdir = tmp_path_factory.mktemp('uninterrupted')
  outcome = run(model, workdir)
  return workdir, outcome


@pytest.mark.parametrize('fatal', [3, 7, 11])
def test_resumed_run_is_the_uninterrupted_one_bit_for_bit(model, uninterrupted, tmp_path, fatal):
  with pytest.raises(InterruptedError):
    run(model, tmp_path, fatal=fatal)
  outcome = run(model, tmp_path)
  whole, whole_outcome = uninterrupted
  chex.assert_trees_all_equal(final_state(tmp_path), final_state(whole))
  assert rows_of(tmp_path) == rows_of(whole)
  assert outcome == whole_outcome._replace(resumed_from={3: None, 7: 5, 11: 10}[fatal])


def test_a_run_whose_last_checkpoint_is_damaged_still_comes_to_the_same(
    model, uninterrupted, tmp_path):
  whole, whole_outcome = uninterrupted
  shutil.copytree(whole, tmp_path / 'run')
  (tmp_path / 'run' / 'checkpoints' / '12' / 'rest' / 'manifest.ocdbt').unlink()
  outcome = run(model, tmp_path / 'run')
  chex.assert_trees_all_equal(final_state(tmp_path / 'run'), final_state(whole))
  assert rows_of(tmp_path / 'run') == rows_of(whole)
  assert outcome == whole_outcome._replace(resumed_from=10)


def test_moving_average_is_resumed_and_is_what_is_evaluated(model, uninterrupted, tmp_path):
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
  assert rows_of(whole)[-1]['valid/bleu'] == float(
      sum(np.abs(leaf).sum() for leaf in jax.tree.leaves(state['average'])))
  like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype),
                      jax.eval_shape(lambda: init_params(model, 0)))
  checkpoints = Checkpoints(whole / 'checkpoints', read_only=True)
  for item in (PARAMS, AVERAGE):
    chex.assert_trees_all_equal(checkpoints.restore_params(12, like, item), state[item])
  checkpoints.close()


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
  assert again == outcome._replace(resumed_from=12)
  assert again.step == 12
  assert rows_of(workdir) == before[0]
  chex.assert_trees_all_equal(final_state(workdir), before[1])


def test_metrics_say_what_was_trained_on(uninterrupted):
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


def test_latest_and_best_checkpoints_are_kept(model, tmp_path):
  outcome = run(model, tmp_path, steps=10, eval_every=1, checkpoint_every=1, keep=2,
                scores=[1, 2, 9, 3, 8.9, 4, 5, 6, 7, 8])
  assert (outcome.best_step, outcome.best_bleu) == (3, 9)
  checkpoints = Checkpoints(tmp_path / 'checkpoints', read_only=True)
  assert checkpoints.steps() == [3, 9, 10]
  assert checkpoints.resolve('best') == 3
  assert checkpoints.resolve('latest') == 10
  assert checkpoints.resolve('9') == 9
  with pytest.raises(ValueError, match="best, latest or one of the steps 3, 9, 10; got '4'"):
    checkpoints.resolve('4')
  checkpoints.close()


def test_of_equal_bleu_the_lowest_validation_loss_is_the_best_for_all_who_ask(
    model, tmp_path, monkeypatch):
  losses = iter([5.0, 4.0, 4.5])
  monkeypatch.setattr(loop, '_evaluate', lambda *_: {'valid/loss': next(losses), 'valid/bleu': 0.0})
  outcome = run(model, tmp_path, steps=3, eval_every=1, checkpoint_every=100, keep=1)
  assert outcome.best_step == 2
  checkpoints = Checkpoints(tmp_path / 'checkpoints', read_only=True)
  assert checkpoints.steps() == [2, 3] and checkpoints.resolve('best') == 2
  checkpoints.close()


def test_what_is_no_longer_kept_is_moved_away_whole_and_also_after_a_kill(
    model, tmp_path, monkeypatch):
  with monkeypatch.context() as patch:
    patch.setattr(checkpoints_module.shutil, 'rmtree', lambda *_, **__: None)
    run(model, tmp_path, steps=6, eval_every=1, checkpoint_every=1, keep=4,
        scores=[9, 5, 4, 3, 2, 1])
  removed, = (tmp_path / 'checkpoints' / 'removed').iterdir()
  assert removed.name == '2' and {path.name for path in removed.iterdir()} == {
      path.name for path in (tmp_path / 'checkpoints' / '1').iterdir()}
  # A process that was killed did not get to remove some; the next does, if it is done too.
  run(model, tmp_path, steps=6, eval_every=1, checkpoint_every=1, keep=2, fatal=0)
  assert sorted(os.listdir(tmp_path / 'checkpoints')) == ['1', '5', '6']


def test_better_evaluation_is_saved_between_regular_checkpoints(model, tmp_path):
  run(model, tmp_path, steps=8, eval_every=2, checkpoint_every=100, keep=1, scores=[1, 3, 2, 2])
  checkpoints = Checkpoints(tmp_path / 'checkpoints', read_only=True)
  assert checkpoints.steps() == [4, 8]
  checkpoints.close()


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


def test_parameters_to_start_from_are_where_training_starts(model, tmp_path):
  settings = Settings(train=dataclasses.replace(
      Settings().train, steps=1, eval_every=1, checkpoint_every=1))
  other = init_params(model, 99)
  chex.assert_trees_all_equal_shapes(other, init_params(model, settings.seed))
  seen = []
  train(settings, model, NumberedBatches(), [make_batch(100)],
        lambda params: seen.append(jax.device_get(params)) or 0.0, tmp_path,
        initial_params=lambda: jax.device_put(other, jax.devices()[1]))
  # One step of Adam moves a parameter by no more than the learning rate.
  change = jax.tree.map(lambda a, b: np.abs(a - b).max(), seen[0], jax.device_get(other))
  assert max(jax.tree.leaves(change)) <= 0.0101


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
  assert len(asked) == 3  # From its checkpoint.
  chex.assert_trees_all_equal(final_state(tmp_path / 'killed'), final_state(tmp_path / 'whole'))


def test_a_loss_that_is_no_number_stops_the_run_before_it_is_saved(model, tmp_path):
  wild = OptimizerConfig(schedule='constant', peak_learning_rate=1e30, warmup_steps=1)
  settings = Settings(optimizer=wild, train=dataclasses.replace(Settings().train,
                                                                checkpoint_every=1))
  with pytest.raises(UserError, match='nothing of it was saved') as error:
    train(settings, model, NumberedBatches(), [make_batch(100)], lambda params: 0.0, tmp_path)
  step = int(re.match(r'the loss of step (\d+) is (nan|inf)', str(error.value))[1])
  checkpoints = Checkpoints(tmp_path / 'checkpoints', read_only=True)
  assert checkpoints.steps()[-1] == step - 1
  assert 'null' not in (tmp_path / 'metrics.jsonl').read_text()
  checkpoints.close()


def test_what_happens_after_a_save_is_not_a_part_of_it(tmp_path, monkeypatch):
  dumps = json.dumps

  def slow(*arguments, **options):
    if threading.current_thread() is not threading.main_thread():
      time.sleep(0.3)
    return dumps(*arguments, **options)

  monkeypatch.setattr(json, 'dumps', slow)
  checkpoints = Checkpoints(tmp_path, keep=9)
  for step in (1, 2):
    history = {'evaluations': [], 'meter': {'steps': step}}
    state = TrainState(jnp.asarray(step), {'a': jnp.zeros(3)}, {'b': jnp.zeros(5)})
    checkpoints.save(state, history)
    history['meter']['steps'] += 1
    history['evaluations'].append({'step': step, 'valid/bleu': 1.0, 'valid/loss': 2.0})
  checkpoints.close()
  checkpoints = Checkpoints(tmp_path, read_only=True)
  for step in (1, 2):
    assert checkpoints.history(step) == {'evaluations': [], 'meter': {'steps': step}}
  checkpoints.close()


def test_metrics_stay_json_where_a_number_is_none(tmp_path):
  reporter = Reporter(tmp_path, 0, 3)
  reporter.write(1, {'a': float('nan'), 'b': float('inf'), 'c': 2.5}, {})
  reporter.close()
  def refuse(constant):
    raise ValueError(constant)
  line = json.loads((tmp_path / 'metrics.jsonl').read_text(), parse_constant=refuse)
  assert line == {'step': 1, 'a': None, 'b': None, 'c': 2.5}


def test_torn_and_later_lines_are_cut_on_resuming(model, uninterrupted, tmp_path):
  with pytest.raises(InterruptedError):
    run(model, tmp_path, fatal=7)
  with (tmp_path / 'metrics.jsonl').open('a') as lines:
    lines.write('{"step": 6, "train/loss": 1.0}\n{"step": 7, "tra')
  run(model, tmp_path)
  assert rows_of(tmp_path) == rows_of(uninterrupted[0])


def test_meter_divides_sums_once():
  meter = Meter({}, positions=20)
  meter.add({'loss': 30.0, 'nll': 10.0, 'weight': 10.0, 'gradient_norm': 1.0, 'source_tokens': 9.0})
  meter.add({'loss': 2.0, 'nll': 2.0, 'weight': 2.0, 'gradient_norm': 4.0, 'source_tokens': 3.0})
  values = meter.take(0.5)
  assert values['train/loss'] == pytest.approx(32 / 12)
  assert values['train/perplexity'] == pytest.approx(np.exp(1.0))
  assert values['train/gradient_norm'] == pytest.approx(2.5)
  assert values['train/fill'] == pytest.approx(12 / 40)
  assert values['train/learning_rate'] == 0.5
  assert meter.sums == {}


def test_meter_times_all_updates_but_the_first_and_those_before_a_pause(monkeypatch):
  clock = iter([1.0, 3.0, 7.0, 100.0, 102.0])
  monkeypatch.setattr(time, 'perf_counter', lambda: next(clock))
  meter = Meter({}, positions=20, utilisation=lambda source, target: source / 100 + target)
  sums = {'loss': 1.0, 'nll': 1.0, 'gradient_norm': 1.0}
  meter.add({**sums, 'weight': 1000.0, 'source_tokens': 1000.0})
  meter.add({**sums, 'weight': 5.0, 'source_tokens': 9.0})
  meter.add({**sums, 'weight': 7.0, 'source_tokens': 3.0})
  meter.restart_clock()
  meter.add({**sums, 'weight': 4.0, 'source_tokens': 6.0})
  values = meter.take(0.5)
  assert values['tokens_per_second'] == pytest.approx((5 + 7 + 4) / (2 + 4 + 2))
  assert values['flops_utilisation'] == pytest.approx((9 + 3 + 6) / 8 / 100 + 2.0)


def test_meter_tells_the_share_of_time_that_batches_were_waited_for(monkeypatch):
  now = 0.0
  monkeypatch.setattr(time, 'perf_counter', lambda: now)
  sums = {'loss': 1.0, 'nll': 1.0, 'gradient_norm': 1.0, 'weight': 1.0, 'source_tokens': 1.0}

  def slow(waits):
    nonlocal now
    for wait in waits:
      now += wait
      yield wait

  meter = Meter({}, positions=20)
  # The first step compiles and is not timed, nor what was waited before it.
  for wait in meter.watch(slow([100.0, 3.0, 0.0, 1.0])):
    now += 2.0
    meter.add(sums)
    if wait == 3.0:
      now += 50.0
      meter.restart_clock()
  assert meter.take(0.5)['train/data_wait'] == pytest.approx((3 + 0 + 1) / (5 + 2 + 3))
  for _ in meter.watch(slow([0.0, 0.0])):
    now += 2.0
    meter.add(sums)
  assert meter.take(0.5)['train/data_wait'] == 0.0


def test_what_a_clock_measures_is_left_out_where_no_step_was_timed():
  sums = {'loss': 1.0, 'nll': 1.0, 'gradient_norm': 1.0, 'weight': 1.0, 'source_tokens': 1.0}
  meter = Meter({}, positions=20, utilisation=lambda source, target: source + target)
  meter.add(sums)  # The first of a process.
  assert meter.tokens_per_second is None
  first = meter.take(0.5)
  assert not first.keys() & set(WALL_CLOCK)
  meter.add(sums)
  speed = meter.tokens_per_second
  second = meter.take(0.5)
  assert second.keys() - first.keys() == set(WALL_CLOCK)
  assert second['tokens_per_second'] == speed > 0


def test_a_run_says_how_long_it_waits_for_data(model, tmp_path):
  class Slow(NumberedBatches):
    def iterate(self, start, stop):
      for batch in super().iterate(start, stop):
        time.sleep(0.2)
        yield batch

  train(Settings(), model, Slow(), [make_batch(100)], lambda params: 0.0, tmp_path)
  lines = [json.loads(line) for line in (tmp_path / 'metrics.jsonl').read_text().splitlines()]
  shares = [line['train/data_wait'] for line in lines if 'train/loss' in line]
  assert len(shares) == 3 and all(0.5 < share <= 1 for share in shares)
