"""The study of a sweep: what makes it the same sweep, its journal, and who runs which trial."""

import math
import socket

import pytest

from launch.sweeping import results, storage
from tests.launch.sweep_sandbox import GOOD
from transformer.errors import StoppedBySignal, UserError
from transformer.runs.lock import run_lock


def test_a_directory_of_another_sweep_is_rejected(begin, tmp_path):
  begin()
  assert begin(number=2).num_unfinished() == 2 and begin(number=4).num_unfinished() == 4
  with pytest.raises(
    UserError, match=r'a different sweep: train.steps was 100000, is now 7; choose'
  ):
    begin(**{'train.steps': 7})
  with pytest.raises(
    UserError, match=r'a different sweep: the search space has changed; choose'
  ):
    begin(GOOD.replace('0.5', '0.6'))
  path = tmp_path / 'sweep' / storage.JOURNAL
  lines = path.read_bytes().splitlines(keepends=True)
  path.write_bytes(b''.join([lines[0], b'{]\n', *lines[1:]]))
  with pytest.raises(UserError, match=r'journal.log.* is damaged: '):
    begin()
  path.unlink()
  with pytest.raises(
    UserError, match=r'is not empty and holds no list of trials; .* --storage of'
  ):
    begin()


def test_settings_that_change_no_trial_may_change(begin):
  begin()
  other = '# A comment.\n' + GOOD.replace("'", '"').replace(', 0.5', ',\n0.50')
  assert (
    begin(other, **{'train.keep': 1, 'decode.beam_size': 9}).study.user_attrs['about'][
      'space'
    ]
    == other
  )


class Killed(BaseException):
  """Stands for a kill in the middle of a trial: Optuna catches only exceptions."""


def kill(_):
  raise Killed


def complete(trial):
  return trial.suggest_float('dropout', 0.0, 0.5)


def run(sweep, end=complete):
  """Ends all free trials by `end`, without training; returns their parameters by number."""
  drawn = {}
  while (trial := sweep.run_next(end)) is not None:
    assert trial.number not in drawn
    drawn[trial.number] = trial.params
  return drawn


def test_a_trial_on_another_host_is_left_to_it_as_long_as_others_wait(
  begin, tmp_path, monkeypatch
):
  sweep = begin()
  with monkeypatch.context() as patch, pytest.raises(Killed):
    patch.setattr(socket, 'gethostname', lambda: 'elsewhere')
    sweep.run_next(kill)
  with run_lock(tmp_path / 'sweep' / 'claims' / '0'):  # Its worker lives.
    assert [sweep.run_next(complete).number for _ in range(2)] == [1, 2]
    assert sweep.run_next(complete) is None and sweep.num_unfinished() == 1
  assert sweep.run_next(complete).number == 0


def test_workers_in_a_folder_run_different_trials(begin):
  here, there = begin(number=2), begin(number=2)

  def meanwhile(trial):
    assert there.run_next(complete).number == 1
    assert there.run_next(complete) is None and there.num_unfinished() == 1
    return complete(trial)

  assert here.run_next(meanwhile).number == 0 and there.num_unfinished() == 0


def test_the_page_knows_a_trial_that_ends_while_it_is_written(begin, monkeypatch):
  sweep = begin(number=2)

  def page(study, objective, headline, texts):
    # In another worker; such a trial has failed.
    sweep.run_next(lambda trial: math.nan)
    return headline.encode()

  monkeypatch.setattr(results, 'page', page)
  results.write(sweep, 'a command')
  assert '2 failed' in (sweep.folder / results.PAGE).read_text()


def test_the_settings_of_a_trial_do_not_depend_on_interruptions(begin, tmp_path):
  whole = run(begin(number=14))
  assert sorted(whole) == list(range(14))
  assert len({params['dropout'] for params in whole.values()}) == 14
  (tmp_path / 'sweep').rename(tmp_path / 'whole')

  def end(trial):
    value = complete(trial)
    if trial.number == 12:
      raise kind
    return value

  for kind in (Killed, UserError, StoppedBySignal):
    with pytest.raises(kind):
      run(begin(number=14), end)
  assert begin(number=14).num_unfinished() == 2
  assert sorted(run(begin(number=14))) == [12, 13]
  assert [trial.params for trial in begin(number=14).started_trials()] == [
    *whole.values()
  ]


def test_the_best_trial_has_the_star(begin):
  sweep = begin()
  run(sweep)
  stars = [row[0].endswith(' *') for row in results.table(sweep)[1:]]
  assert stars == [
    trial.number == sweep.best().number for trial in sweep.started_trials()
  ]


def test_another_seed_of_the_config_samples_other_trials(begin, tmp_path):
  drawn = []
  for seed in (5, 5, 6):
    drawn.append(run(begin(seed=seed)))
    (tmp_path / 'sweep').rename(tmp_path / f'sweep{len(drawn)}')
  assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize('seed', ['', ', seed=seed'])
def test_a_grid_is_tried_once_and_ends(begin, seed):
  grid = f'optuna.samplers.GridSampler({{"dropout": [0.1, 0.2, 0.3, 0.4]}}{seed})'
  sweep = begin(f'{GOOD}import optuna\ndef sampler(seed):\n  return {grid}\n', 9)
  drawn = run(sweep)
  assert sorted(params['dropout'] for params in drawn.values()) == [0.1, 0.2, 0.3, 0.4]
  assert sweep.num_unfinished() == 0
