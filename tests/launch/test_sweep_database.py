"""Sweeps whose trials are in a database."""

import json
import os
import pathlib
import signal
import time

import optuna
import pytest
from optuna.exceptions import StorageInternalError

from launch.sweeping import storage, study, trials
from tests.launch import postgres_server, sweep_house
from tests.launch.sweep_house import GOOD, Sweep, rows_of
from transformer.config import Config
from transformer.errors import UserError


@pytest.mark.filterwarnings('ignore:the load_module:DeprecationWarning')
@pytest.mark.parametrize(('url', 'facts'), [
    ('nonsense', ['--storage must be the URL of a database', 'got nonsense']),
    ('redis://host', ['--storage must be the URL of a database', 'redis://host']),
    ('mssql+pymssql://u:secret@host/x', ['needs pymssql, which is not installed', 'u:***@']),
    ('sqlite:////nowhere/trials.db', ['the database sqlite:////nowhere/trials.db cannot be used',
                                      'unable to open database file'])])
def test_a_database_that_cannot_be_used_is_one_line(launch, folder, tmp_path, url, facts):
  (tmp_path / 'space.py').write_text(GOOD)
  message = launch.refuses(f'--config={folder}/tiny.py', f'--sweep={tmp_path}/space.py',
                           f'--workdir={tmp_path}/sweep', '--trials=3', f'--storage={url}')
  assert all(fact in message for fact in facts) and 'secret' not in message, message
  assert not (tmp_path / 'sweep' / 'trials').exists()


@pytest.fixture
def begin(tmp_path):
  """(directory, trials) -> a sweep in one database, begun as by a machine of its own."""
  def begin(machine, number=3):
    folder = tmp_path / machine / 'sweep'
    folder.mkdir(parents=True, exist_ok=True)
    (tmp_path / 'space.py').write_text(GOOD)
    sweep = study.Sweep(folder, study.Space(
        'space.py', GOOD, lambda trial: {'model.dropout': trial.suggest_float('dropout', 0.0, 0.5)},
        'valid/bleu', optuna.pruners.NopPruner, optuna.samplers.RandomSampler), Config(), number,
        f'sqlite:///{tmp_path}/trials.db')
    made.append(sweep)
    sweep.begin()
    return sweep

  made = []
  yield begin
  for sweep in made:
    if hasattr(sweep, '_storage'):
      sweep._storage._backend.remove_session()
      sweep._storage._backend.engine.dispose()


def test_a_trial_that_is_run_again_keeps_its_number_and_what_it_had(begin, monkeypatch):
  monkeypatch.setattr(storage, '_STALE_SECONDS', 4)
  here, there = begin('here'), begin('there')
  with study.contextlib.ExitStack() as stack:
    first = here.claim(stack)
    settings = trials.space.draw(here.space, first)
    first.set_user_attr('settings', settings)
    first.report(3.0, 5)
  time.sleep(5.5)  # It is still running, and sends no more heartbeats.
  with study.contextlib.ExitStack() as stack:
    again = there.claim(stack)
    other = there.claim(stack)
    retried = next(each for each in (again, other) if study.number_of(each) == 0)
    assert retried.user_attrs['settings'] == settings and retried.params == first.params
    assert len(there.all()) == 3 and there.all()[0].intermediate_values == {5: 3.0}
    trials.run_trial(here, first, None)  # The worker that has lost the trial leaves it alone.
    assert there.all()[0].state == optuna.trial.TrialState.RUNNING
    there.finish(retried, optuna.trial.TrialState.COMPLETE, 4.0)
  assert (here.best().number, here.best().value) == (0, 4.0)
  assert [each.number for each in begin('here', 4).all()] == [0, 1, 2, 3]


def test_a_heartbeat_that_fails_is_not_the_last(begin, monkeypatch):
  monkeypatch.setattr(storage, '_HEARTBEAT_SECONDS', 0.05)
  sweep, beats = begin('here'), []
  with study.contextlib.ExitStack() as stack:
    sweep.claim(stack)

    def beat(trial_id):
      beats.append(trial_id)
      raise StorageInternalError('the database restarts')

    monkeypatch.setattr(sweep._storage, 'record_heartbeat', beat)
    deadline = time.monotonic() + 60
    while len(beats) < 3:
      assert time.monotonic() < deadline
      time.sleep(0.01)
    monkeypatch.undo()


def test_what_could_not_be_stored_is_no_fault_of_the_space(begin, monkeypatch):
  sweep = begin('here')

  def locked(*_):
    raise StorageInternalError('database is locked')

  with study.contextlib.ExitStack() as stack:
    trial = sweep.claim(stack)
    with monkeypatch.context() as patch, pytest.raises(StorageInternalError):
      patch.setattr(sweep._storage, 'set_trial_param', locked)
      trials.run_trial(sweep, trial, [])
  assert not sweep.all()[0].state.is_finished()


def test_two_that_begin_at_once_add_each_trial_once(begin):
  here, there = begin('here'), begin('there')
  for sweep in (here, there):
    sweep.study.add_trial(optuna.create_trial(state=optuna.trial.TrialState.WAITING,
                                              user_attrs={'run': 3}))
  assert [each.number for each in here.all()] == [0, 1, 2, 3]
  # Another worker may already run the first record.
  added = [each._trial_id for each in there.study.get_trials() if each.user_attrs['run'] == 3]
  assert len(added) == 2 and here.all()[3]._trial_id == there.all()[3]._trial_id == min(added)


def test_a_directory_has_its_trials_in_one_place(begin, tmp_path):
  begin('here')
  (tmp_path / 'there' / 'sweep').mkdir(parents=True)
  (tmp_path / 'there' / 'sweep' / storage.JOURNAL).touch()
  with pytest.raises(UserError, match='holds a sweep without --storage; leave --storage out'):
    begin('there')


@pytest.mark.long
@pytest.mark.skipif(not postgres_server.is_installed(), reason='needs root, postgresql, psycopg')
def test_four_workers_share_a_postgresql_and_one_is_killed(folder, tmp_path):
  house, workdir = tmp_path / 'house', tmp_path / 'sweep'
  house.mkdir()
  sweep_house.build(house)
  path = house / 'launch' / 'sweeping' / 'storage.py'
  path.write_text(path.read_text().replace('_HEARTBEAT_SECONDS = 15', '_HEARTBEAT_SECONDS = 1')
                  .replace('_STALE_SECONDS = 120', '_STALE_SECONDS = 6'))
  with postgres_server.postgres_server() as url:
    # As on two machines that share a directory.
    machines = [Sweep(house, workdir, f'--config={folder}/tiny.py', f'--sweep={house}/jobs.py',
                      '--trials=5', '--workers=2', '--config.train.steps=10',
                      '--config.train.grace_seconds=0.1', f'--storage={url}') for _ in range(2)]
    try:
      starts, deadline = workdir / 'trials' / '0' / 'starts', time.monotonic() + 120
      for machine in machines:
        machine.start()
        while machine is machines[0] and not (starts.exists() and starts.read_text()):
          assert machine.process.poll() is None and time.monotonic() < deadline, machine.log
          time.sleep(0.05)
      os.kill(int(starts.read_text()), signal.SIGKILL)
      tables = [rows_of(machine.end(0)) for machine in machines]
    finally:
      for machine in machines:
        machine.close()
  assert tables[0] == tables[1] and sorted(tables[0][1]) == list(range(5))
  for number, row in tables[0][1].items():
    run = workdir / 'trials' / str(number)
    assert row[1] == 'complete', machines[0].log
    # Only the killed trial is started again, and it goes on; no trial runs twice at once.
    assert len((run / 'starts').read_text().split()) == (1 if number else 2)
    steps = [json.loads(line)['step'] for line in (run / 'metrics.jsonl').read_text().splitlines()]
    assert steps == [5, 10]
    assert 'error: ' not in pathlib.Path(f'{run}.log').read_text()
  assert 'secret' not in (workdir / 'sweep.html').read_text('utf-8') + machines[0].log
