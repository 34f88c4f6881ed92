"""Which checkpoints a run keeps, and what each of them holds."""

import dataclasses
import errno
import json
import os
import threading
import time

import jax.numpy as jnp
import pytest

from tests.experiment.tiny_runs import run
from tests.tiny_training import NumberedBatches, Settings, make_task, train_tiny
from transformer.errors import UserError
from transformer.experiment import loop
from transformer.experiment.validation import Validation
from transformer.runs import checkpoints as checkpoints_file
from transformer.runs import sealing
from transformer.runs.checkpoints import Checkpoints
from transformer.training.step import TrainState


@pytest.mark.long
def test_latest_and_best_checkpoints_are_kept(model, tmp_path):
  outcome = run(model, tmp_path, steps=10, eval_every=1, checkpoint_every=1, keep=2,
                scores=[1, 2, 9, 3, 8.9, 4, 5, 6, 7, 8])
  assert (outcome.best_step, outcome.best['valid/bleu']) == (3, 9)
  checkpoints = Checkpoints(tmp_path / 'checkpoints', read_only=True)
  assert checkpoints.steps() == [3, 9, 10]
  assert checkpoints.resolve('best') == 3
  assert checkpoints.resolve('latest') == 10
  assert checkpoints.resolve('9') == 9
  with pytest.raises(ValueError, match="best, latest or one of the steps 3, 9, 10; got '4'"):
    checkpoints.resolve('4')
  checkpoints.close()


def test_equal_bleu_is_decided_by_the_lowest_validation_loss_everywhere(
    model, tmp_path, monkeypatch):
  losses = iter([5.0, 4.0, 4.5])
  monkeypatch.setattr(loop, 'evaluate', lambda *_: (
      {'valid/loss': next(losses), 'valid/bleu': 0.0}, {'valid': Validation(0.0)}))
  outcome = run(model, tmp_path, steps=3, eval_every=1, checkpoint_every=100, keep=1)
  assert outcome.best_step == 2
  checkpoints = Checkpoints(tmp_path / 'checkpoints', read_only=True)
  assert checkpoints.steps() == [2, 3] and checkpoints.resolve('best') == 2
  checkpoints.close()


def test_another_metric_decides_everywhere(model, tmp_path, monkeypatch):
  losses = iter([5.0, 4.0, 4.5])
  monkeypatch.setattr(loop, 'evaluate', lambda *_: (
      {'valid/loss': next(losses), 'valid/bleu': 7.0 + next(more)}, {'valid': Validation(0.0)}))
  more = iter([2.0, 0.0, 1.0])
  outcome = run(model, tmp_path, steps=3, eval_every=1, checkpoint_every=100, keep=1,
                best_by='loss')
  assert outcome.best_step == 2
  checkpoints = Checkpoints(tmp_path / 'checkpoints', read_only=True)
  assert checkpoints.steps() == [2, 3] and checkpoints.resolve('best') == 2
  checkpoints.close()
  losses, more = iter([5.0]), iter([0.0])
  with pytest.raises(UserError, match="best_by must be one of loss, bleu; got 'comet'"):
    run(model, tmp_path / 'other', steps=1, eval_every=1, best_by='comet', valid_metric='m:comet')


@pytest.mark.long
def test_old_checkpoints_are_moved_whole_and_deleted_also_after_a_kill(
    model, tmp_path, monkeypatch):
  with monkeypatch.context() as patch:
    patch.setattr(checkpoints_file.shutil, 'rmtree', lambda *_, **__: None)
    run(model, tmp_path, steps=6, eval_every=1, checkpoint_every=1, keep=4,
        scores=[9, 5, 4, 3, 2, 1])
  removed, = (tmp_path / 'checkpoints' / 'removed').iterdir()
  assert removed.name == '2' and {path.name for path in removed.iterdir()} == {
      path.name for path in (tmp_path / 'checkpoints' / '1').iterdir()}
  # The next process deletes what a killed one did not, even if the run has ended.
  run(model, tmp_path, steps=6, eval_every=1, checkpoint_every=1, keep=2, fatal=0)
  assert sorted(os.listdir(tmp_path / 'checkpoints')) == ['1', '5', '6']


def test_a_failed_write_ends_the_run_before_the_next_checkpoint_is_due(
    model, tmp_path, monkeypatch):
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
  settings = Settings()
  settings = settings._replace(train=dataclasses.replace(
      settings.train, steps=100, checkpoint_every=40, eval_every=100))
  with pytest.raises(UserError, match=r'checkpoint cannot be written to .*: No space left on'):
    train_tiny(settings, make_task(model, Waiting()), tmp_path)
  assert max(served) < 79  # The next checkpoint is due after this batch.


@pytest.mark.long
def test_better_evaluation_is_saved_between_regular_checkpoints(model, tmp_path):
  run(model, tmp_path, steps=8, eval_every=2, checkpoint_every=100, keep=1, scores=[1, 3, 2, 2])
  checkpoints = Checkpoints(tmp_path / 'checkpoints', read_only=True)
  assert checkpoints.steps() == [4, 8]
  checkpoints.close()


def test_changes_of_the_history_after_a_save_are_not_saved(tmp_path, monkeypatch):
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

