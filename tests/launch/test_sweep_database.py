"""Sweeps whose trials are in a database."""

import json
import os
import pathlib
import signal
import time

import optuna
import pytest

from launch.sweeping import storage, study
from tests.launch import sweep_sandbox
from tests.launch.sweep_sandbox import GOOD, Sweep, rows_of
from transformer.config import Config
from transformer.errors import UserError


@pytest.mark.parametrize(
  ('url', 'facts'),
  [
    ('nonsense', ['--storage must be the URL of a database', 'got nonsense']),
    ('redis://host', ['--storage must be the URL of a database', 'redis://host']),
    ('sqlite://', ['--storage=sqlite:// is in the memory of one process', '; name a']),
    ('sqlite:///:memory:', ['is in the memory of one process']),
    (
      'mssql+pymssql://u:secret@host/x',
      ['needs pymssql, which is not installed', 'u:***@'],
    ),
    (
      'sqlite:////nowhere/trials.db',
      [
        'the database sqlite:////nowhere/trials.db cannot be used',
        'unable to open database file',
      ],
    ),
  ],
)
def test_a_database_that_cannot_be_used_is_a_one_line_error(
  launch, folder, tmp_path, url, facts
):
  (tmp_path / 'space.py').write_text(GOOD)
  flags = (
    f'--config={folder}/tiny.py',
    f'--search_space={tmp_path}/space.py',
    f'--workdir={tmp_path}/sweep',
    '--trials=3',
    f'--storage={url}',
  )
  message = launch.rejects(*flags)
  assert all(fact in message for fact in facts) and 'secret' not in message, message
  if 'nowhere' not in url:  # A dry run connects to no database.
    assert launch.rejects(*flags, '--dry_run') == message
  assert not (tmp_path / 'sweep' / 'trials').exists()


@pytest.fixture
def begin(tmp_path, monkeypatch):
  """(directory, trials) -> a sweep in one database, started as if on a separate machine."""

  def begin(machine, number=3, database='trials.db'):
    folder = tmp_path / machine / 'sweep'
    folder.mkdir(parents=True, exist_ok=True)
    (tmp_path / 'space.py').write_text(GOOD)
    sweep = study.Sweep(
      folder,
      study.Space(
        'space.py',
        GOOD,
        lambda trial: {'model.dropout': trial.suggest_float('dropout', 0.0, 0.5)},
        'valid/bleu',
        optuna.pruners.NopPruner,
        optuna.samplers.RandomSampler,
      ),
      Config(),
      number,
      f'sqlite:///{tmp_path}/{database}',
    )
    sweep.begin()
    return sweep

  made, opens = [], storage.open_database

  def open_database(url):
    made.append(opens(url))
    return made[-1]

  monkeypatch.setattr(storage, 'open_database', open_database)
  yield begin
  for database in made:
    database.remove_session()
    database.engine.dispose()


def complete(trial):
  trial.suggest_float('dropout', 0.0, 0.5)
  return float(trial.number)


def test_a_trial_of_a_silent_worker_resumes_elsewhere_with_its_progress(
  begin, monkeypatch
):
  monkeypatch.setattr(storage, 'STALE_SECONDS', 2)
  here, there = begin('here'), begin('there')
  again = []

  def resume(trial):
    again.append(
      (
        trial.number,
        trial.user_attrs['settings'],
        trial.params,
        trial.study.records()[0].intermediate_values,
      )
    )
    return 4.0

  def be_silent(trial):
    trial.set_user_attr(
      'settings', {'model.dropout': trial.suggest_float('dropout', 0.0, 0.5)}
    )
    trial.report(3.0, 5)
    time.sleep(3.5)  # The next heartbeat would come after 15 seconds.
    assert there.run_next(resume).number == 0
    trial.report(2.0, 10)  # The trial is another worker's now.
    raise AssertionError

  here.run_next(be_silent)
  ((number, settings, params, values),) = again
  assert (
    number == 0
    and settings == {'model.dropout': params['dropout']}
    and values == {5: 3.0}
  )
  assert (here.best().number, here.best().value) == (0, 4.0)
  assert [here.run_next(complete).number for _ in range(2)] == [1, 2]
  assert here.run_next(complete) is None and here.num_unfinished() == 0
  assert begin('here', 4).num_unfinished() == 1


def test_a_trial_too_many_that_two_machines_add_at_once_is_not_run(begin, monkeypatch):
  here, there, ran = begin('here', 1), begin('there', 1), []

  def meanwhile(trial):
    with monkeypatch.context() as patch:
      patch.setattr(there, 'num_unstarted', lambda: 1)  # The state a moment ago.
      there.run_next(ran.append)
    return complete(trial)

  assert here.run_next(meanwhile).number == 0
  assert ran == [] and here.num_unfinished() == there.num_unfinished() == 0
  assert [trial.number for trial in here.started_trials()] == [0] and begin(
    'there', 2
  ).num_unfinished() == 1


def test_a_directory_has_its_trials_in_one_place(begin, tmp_path):
  begin('here')
  (tmp_path / 'there' / 'sweep').mkdir(parents=True)
  (tmp_path / 'there' / 'sweep' / storage.JOURNAL).touch()
  with pytest.raises(
    UserError, match='holds a sweep without --storage; remove --storage'
  ):
    begin('there')


def test_a_mistyped_database_does_not_run_the_trials_again(begin, tmp_path):
  begin('here')
  with pytest.raises(
    UserError, match=r'holds runs, but sweep in sqlite.*trails\.db does not exist; pass'
  ):
    begin('here', database='trails.db')
  assert not (tmp_path / 'trails.db').exists()
  begin('here')


@pytest.mark.long
def test_four_workers_share_a_database_and_one_is_killed(folder, tmp_path):
  sandbox, workdir = tmp_path / 'sandbox', tmp_path / 'sweep'
  sandbox.mkdir()
  sweep_sandbox.build(sandbox)
  path = sandbox / 'launch' / 'sweeping' / 'storage.py'
  path.write_text(
    path.read_text()
    .replace('HEARTBEAT_SECONDS = 15', 'HEARTBEAT_SECONDS = 1')
    .replace('STALE_SECONDS = 120', 'STALE_SECONDS = 6')
  )
  # As on two machines that share a directory.
  machines = [
    Sweep(
      sandbox,
      workdir,
      f'--config={folder}/tiny.py',
      f'--search_space={sandbox}/jobs.py',
      '--trials=5',
      '--workers=2',
      '--config.train.steps=10',
      '--config.train.grace_seconds=0.1',
      f'--storage=sqlite:///{tmp_path}/trials.db',
    )
    for _ in range(2)
  ]
  try:
    starts, deadline = workdir / 'trials' / '0' / 'starts', time.monotonic() + 120
    for machine in machines:
      machine.start()
      while machine is machines[0] and not (starts.exists() and starts.read_text()):
        assert machine.process.poll() is None and time.monotonic() < deadline, (
          machine.log
        )
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
    # Only the killed trial is restarted, and it resumes; no trial runs twice at once.
    assert len((run / 'starts').read_text().split()) == (1 if number else 2)
    steps = [
      json.loads(line)['step']
      for line in (run / 'metrics.jsonl').read_text().splitlines()
    ]
    assert steps == [5, 10]
    assert 'error: ' not in pathlib.Path(f'{run}.log').read_text()
