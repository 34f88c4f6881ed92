"""Fixtures of the tests of sweeps: the command, for its errors, and a sweep in a folder."""

import optuna
import pytest

from launch.sweeping import space, study
from tests.launch.sweep_sandbox import GOOD
from transformer.config import Config


def pytest_itemcollected(item):
  """Ignores that ml_collections loads a config's file in a way that Python would have changed."""
  for warning in (
    ':the load_module:DeprecationWarning',
    '::optuna.exceptions.ExperimentalWarning',
  ):
    item.add_marker(pytest.mark.filterwarnings(f'ignore{warning}'))


@pytest.fixture(scope='module')
def launch(start_command):
  """Starts the sweep's command, for tests of its errors."""
  yield from start_command('launch.sweep')


@pytest.fixture
def begin(tmp_path):
  """(text of a search space, trials, changes to the config) -> a sweep, always in one directory."""

  def begin(text=GOOD, number=3, **changes):
    (tmp_path / 'space.py').write_text(text)
    (tmp_path / 'sweep').mkdir(exist_ok=True)
    sweep = study.Sweep(
      tmp_path / 'sweep',
      space.load(str(tmp_path / 'space.py')),
      space.with_settings(Config(), changes),
      number,
    )
    sweep.begin()
    return sweep

  return begin


@pytest.fixture(autouse=True)
def quiet():
  before = optuna.logging.get_verbosity()
  optuna.logging.set_verbosity(optuna.logging.ERROR)
  yield
  optuna.logging.set_verbosity(before)
