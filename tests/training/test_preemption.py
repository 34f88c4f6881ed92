"""Runs that are asked to stop, and then go on as if nothing had happened."""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import chex
import jax
import numpy as np
import pytest

from tests.training.conftest import NumberedBatches, Settings, make_batch
from tests.training.test_loop import final_state, rows_of
from transformer.errors import Preempted, UserError
from transformer.training import digests
from transformer.training.checkpoints import Checkpoints
from transformer.training.loop import train
from transformer.training.preemption import EXIT_STATUS, SIGNALS, Signals
from transformer.training.signal_checkpoint import SignalCheckpoint
from transformer.training.step import init_params

ROOT = Path(__file__).parents[2]
SAVE = SignalCheckpoint.save


class Signalled(NumberedBatches):
  """Batches that send a signal on the way to one, and kill the run on the way to another."""

  def __init__(self, at, number=signal.SIGTERM, fatal=None):
    super().__init__(fatal)
    self._at, self._number = at, number

  def iterate(self, start, stop):
    for step, batch in zip(range(start, stop), super().iterate(start, stop), strict=True):
      if step == self._at:
        os.kill(os.getpid(), self._number)
      yield batch


def run(model, workdir, *, batches=None, at_score=None, rising=True, initial_params=None,
        **changes):
  """Trains, with signals; `at_score` is the number of the evaluation that one comes in."""
  settings = Settings(train=dataclasses.replace(Settings().train, ema_decay=0.9, **changes))
  scored = 0

  def score(params):
    nonlocal scored
    scored += 1
    if scored == at_score:
      os.kill(os.getpid(), signal.SIGTERM)
    size = float(sum(np.abs(leaf).sum() for leaf in jax.tree.leaves(jax.device_get(params))))
    return size if rising else 1e6 / size

  with Signals() as signals:
    return train(settings, model, batches or NumberedBatches(), [make_batch(100)], score, workdir,
                 initial_params, signals=signals)


def steps_in(folder):
  checkpoints = Checkpoints(folder, read_only=True)
  steps = checkpoints.steps()
  checkpoints.close()
  return steps


@pytest.fixture(scope='module')
def whole(model, tmp_path_factory):
  """A run that no signal came to."""
  workdir = tmp_path_factory.mktemp('whole')
  return workdir, run(model, workdir)


def assert_same(workdir, whole):
  chex.assert_trees_all_equal(final_state(workdir), final_state(whole))
  assert rows_of(workdir) == rows_of(whole)
  assert steps_in(workdir / 'checkpoints') == steps_in(whole / 'checkpoints')
  assert not (workdir / 'interrupted').exists()


@pytest.mark.parametrize(('number', 'step'), [
    (signal.SIGTERM, 1), (signal.SIGINT, 7), (signal.SIGUSR1, 9),
    (signal.SIGTERM, 5),  # An evaluation, and a regular checkpoint, are due after it.
])
def test_a_signal_saves_the_step_that_it_comes_in(model, whole, tmp_path, number, step):
  with pytest.raises(Preempted, match=f'stopped by {number.name} after step {step}, which is sav'):
    run(model, tmp_path, batches=Signalled(step - 1, number))
  assert steps_in(tmp_path / 'checkpoints') == [each for each in (5,) if each < step]
  assert steps_in(tmp_path / 'interrupted') == [step]
  outcome = run(model, tmp_path)
  assert outcome == whole[1]._replace(resumed_from=step)
  assert_same(tmp_path, whole[0])


@pytest.mark.parametrize(('evaluation', 'step', 'before'), [(1, 5, []), (3, 12, [5, 10])])
def test_an_evaluation_that_is_cut_short_is_made_again(
    model, whole, tmp_path, evaluation, step, before):
  with pytest.raises(Preempted, match=f'after step {step}, which is saved'):
    run(model, tmp_path, at_score=evaluation)
  assert not [row for row in rows_of(tmp_path) if row['step'] == step and 'valid/bleu' in row]
  assert steps_in(tmp_path / 'checkpoints') == before
  assert steps_in(tmp_path / 'interrupted') == [step]
  # A signal, once more in the same evaluation, changes nothing.
  with pytest.raises(Preempted, match=f'after step {step}, which is saved'):
    run(model, tmp_path, at_score=1)
  assert steps_in(tmp_path / 'interrupted') == [step]
  assert run(model, tmp_path) == whole[1]._replace(resumed_from=step)
  assert_same(tmp_path, whole[0])


def test_a_kill_after_the_evaluation_that_was_owed_leaves_no_line_twice(model, tmp_path):
  # Parameters grow; so no evaluation is better than the first, and saved for it.
  regular = {'checkpoint_every': 100, 'steps': 11, 'eval_every': 5, 'rising': False}
  run(model, tmp_path / 'whole', **regular)
  with pytest.raises(Preempted, match='after step 10'):
    run(model, tmp_path / 'parts', at_score=2, **regular)
  with pytest.raises(InterruptedError):
    run(model, tmp_path / 'parts', batches=NumberedBatches(10), **regular)
  assert steps_in(tmp_path / 'parts' / 'checkpoints') == [5]
  assert [row['step'] for row in rows_of(tmp_path / 'parts') if 'valid/bleu' in row] == [5, 10]
  run(model, tmp_path / 'parts', **regular)
  assert_same(tmp_path / 'parts', tmp_path / 'whole')


def test_what_a_signal_saves_is_not_kept_nor_counted(model, tmp_path):
  with pytest.raises(Preempted):
    run(model, tmp_path, batches=Signalled(6), keep=1, checkpoint_every=3, eval_every=100)
  with pytest.raises(Preempted):
    run(model, tmp_path, batches=Signalled(7), keep=1, checkpoint_every=3, eval_every=100)
  assert steps_in(tmp_path / 'checkpoints') == [6]
  assert steps_in(tmp_path / 'interrupted') == [8]
  with pytest.raises(InterruptedError):
    run(model, tmp_path, batches=NumberedBatches(10), keep=1, checkpoint_every=3, eval_every=100)
  assert steps_in(tmp_path / 'checkpoints') == [9]
  assert not (tmp_path / 'interrupted').exists()


def test_the_best_is_saved_before_what_a_signal_saves(model, whole, tmp_path, monkeypatch):
  """Killed as soon as the signal's checkpoint is there, the run must not lack the one before."""
  seal, killed = digests.seal, []

  def slow(folder, step):
    if step == 5:  # It is the best, and is written in a thread.
      time.sleep(1.0)
    seal(folder, step)

  def save(*arguments):
    SAVE(*arguments)
    killed.append(steps_in(tmp_path / 'checkpoints'))

  with monkeypatch.context() as patch:
    patch.setattr(digests, 'seal', slow)
    patch.setattr(SignalCheckpoint, 'save', save)
    with pytest.raises(Preempted):
      run(model, tmp_path, batches=Signalled(5))
  assert killed == [[5]]
  run(model, tmp_path)
  assert_same(tmp_path, whole[0])


def test_of_what_was_saved_the_latest_that_is_whole_is_gone_on_from(model, whole, tmp_path):
  with pytest.raises(Preempted):
    run(model, tmp_path, batches=Signalled(6))
  shutil.copytree(tmp_path / 'interrupted', tmp_path / 'copy')
  with pytest.raises(InterruptedError):
    run(model, tmp_path, batches=NumberedBatches(11))
  # Killed between the checkpoint of step 10 and the removal of what it makes needless.
  (tmp_path / 'copy').rename(tmp_path / 'interrupted')
  (tmp_path / 'checkpoints' / '10' / 'history' / 'metadata').unlink()
  assert run(model, tmp_path) == whole[1]._replace(resumed_from=7)
  shutil.rmtree(tmp_path / 'checkpoints' / '10.damaged')
  assert_same(tmp_path, whole[0])


def test_half_a_checkpoint_of_a_signal_is_removed(model, tmp_path):
  half = tmp_path / 'interrupted' / '3.unsealed.orbax-checkpoint-tmp'
  half.mkdir(parents=True)
  run(model, tmp_path, steps=1)
  assert not (tmp_path / 'interrupted').exists()


def test_what_a_signal_saved_and_is_damaged_is_moved_aside(model, whole, tmp_path):
  for step, before in ((4, None), (7, 5)):
    workdir = tmp_path / str(step)
    with pytest.raises(Preempted):
      run(model, workdir, batches=Signalled(step - 1))
    (workdir / 'interrupted' / str(step) / 'history' / 'metadata').unlink()
    if before is None:
      with pytest.raises(UserError, match=r'interrupted/4 is damaged: history/metadata is missing; '
                                          r'there is no other checkpoint; restore it'):
        run(model, workdir)
    else:
      assert run(model, workdir) == whole[1]._replace(resumed_from=before)
      assert_same(workdir, whole[0])
      assert steps_in(workdir / 'interrupted.damaged') == [step]


def test_a_signal_before_the_first_step_saves_nothing(model, whole, tmp_path):
  def initial_params():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)

  with pytest.raises(Preempted, match='stopped by SIGINT; the same command goes on with the run'):
    run(model, tmp_path, initial_params=initial_params)
  assert steps_in(tmp_path / 'checkpoints') == []
  run(model, tmp_path)
  assert_same(tmp_path, whole[0])


def test_a_signal_that_was_swallowed_counts_when_the_steps_begin(model, tmp_path):
  def initial_params():
    with contextlib.suppress(Preempted):  # As a finalizer does.
      os.kill(os.getpid(), signal.SIGTERM)
    return init_params(model, 99)

  with pytest.raises(Preempted, match='stopped by SIGTERM; the same command'):
    run(model, tmp_path, initial_params=initial_params)
  assert steps_in(tmp_path / 'checkpoints') == []
  assert not (tmp_path / 'interrupted').exists()


def test_a_signal_in_the_last_step_leaves_a_run_that_is_done(model, tmp_path):
  # The evaluation is cut short: that is the only way for the last step not to be the end.
  with pytest.raises(Preempted, match='after step 12, which is saved'):
    run(model, tmp_path, batches=Signalled(11))
  assert run(model, tmp_path).step == 12
  assert steps_in(tmp_path / 'checkpoints')[-1] == 12


def test_handlers_are_as_they_were_afterwards():
  before = [signal.getsignal(number) for number in SIGNALS]
  with Signals():
    assert [signal.getsignal(number) for number in SIGNALS] != before
  assert [signal.getsignal(number) for number in SIGNALS] == before
  assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize('number', [1, 2])
def test_no_one_need_read_what_is_told(number):
  """As in `train.py 2>&1 | tee log`, where Ctrl-C ends `tee` too."""
  with subprocess.Popen([sys.executable, '-c', BUSY.format(before='pass'), '1'], cwd=ROOT,
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
    process.stdout.readline()
    process.stderr.close()
    for _ in range(number):
      process.send_signal(signal.SIGINT)
      time.sleep(0.1)
    try:
      assert process.wait(timeout=20) == EXIT_STATUS
    finally:
      process.kill()


# What holds the main thread for ever without a step of Python.
BUSY = """
import hashlib, sys, threading
from transformer.training.preemption import Signals
with Signals(float(sys.argv[1])) as signals:
  {before}
  threading.Timer(0.2, print, kwargs={{'flush': True}}).start()
  hashlib.pbkdf2_hmac('sha256', b'', b'', 2 ** 31 - 1)
"""


@pytest.mark.parametrize('before', ['pass', 'signals.hold()'])
@pytest.mark.parametrize(('grace', 'signals', 'said'), [
    (0.3, [signal.SIGTERM], 'took longer than train.grace_seconds=0.3; stopped without'),
    (1000, [signal.SIGUSR1, signal.SIGINT], 'stopped at once by a second signal, SIGINT'),
])
def test_nothing_holds_up_the_end_of_the_grace_period_or_a_second_signal(
    before, grace, signals, said):
  with subprocess.Popen([sys.executable, '-c', BUSY.format(before=before), str(grace)], cwd=ROOT,
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
    process.stdout.readline()
    for number in signals:
      process.send_signal(number)
      time.sleep(0.1)
    try:
      _, err = process.communicate(timeout=20)
    finally:
      process.kill()
  assert process.returncode == EXIT_STATUS == 75
  first, last = err.splitlines()
  does = 'stops' if before == 'pass' else 'saves where it is and stops'
  assert first == (f'{signals[0].name}: the run {does}, within {grace:g} seconds; a second signal '
                   f'stops it at once')
  assert said in last
