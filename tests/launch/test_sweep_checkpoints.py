"""`--keep_best`: which trials keep their checkpoints, whoever deletes and whenever that stops."""

import shutil

import optuna
import pytest

from launch.sweeping import checkpoints, results, storage, study, trials
from tests.launch.sweep_sandbox import GOOD
from transformer.errors import UserError
from transformer.runs.lock import run_lock

OTHER_FILES = {'config.json', 'run.json', 'metrics.jsonl', 'eval'}


def make_run(sweep, number):
  """Writes the files of a run with two checkpoints, as train.py would."""
  run = sweep.folder / 'trials' / str(number)
  for step in ('5', '10'):
    (run / 'checkpoints' / step / 'params').mkdir(parents=True)
    (run / 'checkpoints' / step / 'params' / 'data').write_text('weights')
  (run / 'eval').mkdir()
  for name in OTHER_FILES - {'eval'}:
    (run / name).write_text('{}')
  return run


def ending(sweep, value):
  """Returns how a trial ends: with a value, pruned for None, or failed for NaN."""

  def end(trial):
    make_run(sweep, trial.number)
    trial.suggest_float('dropout', 0.0, 0.5)
    trial.set_user_attr('settings', {'model.dropout': 0.1})
    trial.set_user_attr('step', 10)
    if value is None:
      raise optuna.TrialPruned
    if value != value:
      trial.set_user_attr('reason', 'it broke')
    return value

  return end


def end_trials(sweep, *values):
  for value in values:
    sweep.run_next(ending(sweep, value))


def kept(sweep):
  """Returns the trials that have checkpoints; all runs must have their other files."""
  runs = sorted((sweep.folder / 'trials').iterdir(), key=lambda run: int(run.name))
  for run in runs:
    names = {path.name for path in run.iterdir()}
    assert names - {'checkpoints', checkpoints.DELETED} == OTHER_FILES
    assert len([*run.glob('checkpoints/*/params/data')]) in (0, 2)
  return [int(run.name) for run in runs if (run / 'checkpoints').exists()]


@pytest.mark.parametrize(
  ('objective', 'best'), [('valid/bleu', [0, 2]), ('valid/loss', [1, 4])]
)
def test_the_best_trials_keep_their_checkpoints(begin, objective, best):
  sweep = begin(f'{GOOD}objective = {objective!r}\n', 6)
  end_trials(sweep, 3.0, 1.0, 3.0, None, 2.0, float('nan'))
  checkpoints.delete_all_but_best(sweep)
  assert kept(sweep) == [0, 1, 2, 3, 4, 5]
  sweep.keep_best = 2
  checkpoints.delete_all_but_best(sweep)
  assert kept(sweep) == best
  titles, *rows = results.table(sweep)
  column = titles.index('checkpoints')
  assert [number for number, row in enumerate(rows) if row[column] == 'kept'] == best
  assert [row[column] for row in rows].count('deleted') == 4
  assert (
    f'trial(s) are deleted; trials that keep them: {best[0]}, {best[1]}'
    in results.summary(sweep)
  )

  sweep.keep_best = 3
  assert 'were deleted when fewer were to be kept' in results.summary(sweep)


def test_a_run_trained_again_after_the_deletion_stays(begin):
  sweep = begin(number=2)
  sweep.keep_best = 1
  end_trials(sweep, 1.0, 2.0)
  checkpoints.delete_all_but_best(sweep)
  assert kept(sweep) == [1]
  (sweep.folder / 'trials' / '0' / 'checkpoints' / '20' / 'params').mkdir(parents=True)
  checkpoints.delete_all_but_best(sweep)
  assert (sweep.folder / 'trials' / '0' / 'checkpoints' / '20' / 'params').exists()


def test_a_trial_that_may_resume_keeps_its_checkpoints(begin, monkeypatch):
  """One that runs, one that its worker has left, and one whose run another process trains."""
  sweep, other = begin(number=4), begin(number=4)
  sweep.keep_best = other.keep_best = 1

  def be_stopped(trial):
    make_run(sweep, trial.number)
    raise KeyboardInterrupt

  def while_it_runs(trial):
    make_run(sweep, trial.number)
    end_trials(other, 2.0, 1.0, 3.0)
    with run_lock(sweep.folder / 'trials' / '2'):
      checkpoints.delete_all_but_best(other)
    return 0.0

  sweep.run_next(while_it_runs)
  assert kept(sweep) == [0, 2, 3]
  checkpoints.delete_all_but_best(other)
  assert kept(sweep) == [3]
  sweep = begin(number=5)
  sweep.keep_best = 1
  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    # As in the moment before.
    patch.setattr(study.Study, 'requeue_abandoned', lambda _: None)
    sweep.run_next(be_stopped)
  for _ in range(2):
    checkpoints.delete_all_but_best(sweep)
    assert kept(sweep) == [3, 4]
    sweep.study.requeue_abandoned()


def test_an_interrupted_deletion_leaves_no_partial_checkpoint_and_resumes(
  begin, monkeypatch, caplog
):
  sweep = begin(number=2)
  sweep.keep_best = 1
  end_trials(sweep, 1.0, 2.0)

  def fail(path):
    raise OSError(5, 'Input/output error')

  with monkeypatch.context() as patch:
    patch.setattr(shutil, 'rmtree', fail)
    checkpoints.delete_all_but_best(sweep)
  assert 'the checkpoints of trial 0 are not deleted' in caplog.text
  left = sweep.folder / 'trials' / '0' / checkpoints.DELETED
  assert kept(sweep) == [1] and any(left.iterdir())
  # Without the flag, nothing is deleted.
  checkpoints.delete_all_but_best(begin(number=2))
  assert any(left.iterdir())
  checkpoints.delete_all_but_best(sweep)
  assert kept(sweep) == [1] and not any(left.iterdir())


def test_a_trial_without_its_checkpoints_does_not_resume(begin, monkeypatch):
  """A list of trials from a copy may be older than the runs."""
  sweep = begin(number=2)
  sweep.keep_best = 1
  end_trials(sweep, 1.0)
  journal = sweep.folder / storage.JOURNAL
  older = journal.read_bytes()
  end_trials(sweep, 2.0)
  checkpoints.delete_all_but_best(sweep)
  assert kept(sweep) == [1]
  journal.write_bytes(older.partition(b'"state":1')[0].rpartition(b'\n')[0] + b'\n')
  sweep = begin(number=2)
  with pytest.raises(UserError, match=r'trials/0 must resume, but --keep_best deleted'):
    sweep.run_next(lambda trial: trials.run_trial(sweep, trial, [], []))
  assert sweep.num_unfinished() == 2
