"""What belongs to this project, and its commands and configs, in a checkout and installed."""

import importlib.metadata
import sys
import types
from pathlib import Path

import pytest

from transformer.runs import run_directory
from transformer.system import installation


@pytest.fixture
def installed(tmp_path, monkeypatch):
  """Returns a folder as site-packages is after an installation; the current folder is another."""
  site = tmp_path / '.venv' / 'lib' / 'python3.13' / 'site-packages'
  (site / 'attention_commands' / 'configs').mkdir(parents=True)
  for name in ('base', 'other'):
    (site / 'attention_commands' / 'configs' / f'{name}.py').write_text(
      f'{name} = "installed"\n'
    )
  (tmp_path / 'here').mkdir()
  monkeypatch.chdir(tmp_path / 'here')
  monkeypatch.setattr(installation, 'TOP', site)
  monkeypatch.setattr(sys, 'path', [])
  return site


def test_log_lines_of_this_project_are_shown_but_not_of_libraries(
  installed, monkeypatch
):
  for name in ('transformer/runs/lock.py', 'attention_commands/train.py'):
    assert installation.is_project_file(installed / name)
  for name in ('transformers/trainer.py', 'jax/_src/api.py', 'absl/app.py', 'noise.py'):
    assert not installation.is_project_file(installed / name)
  checkout = installed.parents[3]
  # Here, that is another copy.
  assert not installation.is_project_file(checkout / 'train.py')
  monkeypatch.setattr(installation, 'TOP', checkout)
  for name in (
    'train.py',
    'eval.py',
    'transformer/runs/lock.py',
    'launch/sweeping/trials.py',
  ):
    assert installation.is_project_file(checkout / name)
  for name in ('jax/_src/api.py', 'transformer/runs/lock.py'):
    assert not installation.is_project_file(installed / name)


@pytest.mark.parametrize(
  ('text', 'spelled'),
  [
    (
      'score it with: python eval.py --workdir=%s',
      'score it with: attention-eval --workdir=%s',
    ),
    (
      '  python train.py --config=configs/x.py',
      '  attention-train --config=configs/x.py',
    ),
    ('python -m transformer.tools.audit, with', 'attention-audit, with'),
    ("a folder of eval.py's --results", "a folder of attention-eval's --results"),
    (
      'configs/retrain.py transformer/config.py',
      'configs/retrain.py transformer/config.py',
    ),
  ],
)
def test_commands_are_spelled_as_the_user_has_them(monkeypatch, request, text, spelled):
  monkeypatch.setattr(sys, 'argv', ['/somewhere/train.py'])
  assert installation.rewrite_commands(text) == text
  # A package that is installed in place is in its checkout.
  monkeypatch.setattr(sys, 'argv', ['/somewhere/bin/attention-train'])
  assert installation.rewrite_commands(text) == spelled
  request.getfixturevalue('installed')
  monkeypatch.setattr(sys, 'argv', ['/somewhere/transformer/tools/convert/__main__.py'])
  assert installation.rewrite_commands(text) == spelled


def test_a_config_missing_here_is_found_in_this_project(installed):
  folder = installed / 'attention_commands' / 'configs'
  assert installation.find_config('configs/base.py') == f'{folder}/base.py'
  assert installation.find_config('./configs/base.py:a:b') == f'{folder}/base.py:a:b'
  for other in (
    'configs/none.py',
    'base.py',
    'mine/configs/base.py',
    'configs',
    '/configs/base.py',
    'configs/../configs/base.py',
    '../configs/base.py',
  ):
    assert installation.find_config(other) == other
  Path('configs').mkdir()
  assert installation.find_config('configs/base.py') == f'{folder}/base.py'
  Path('configs', 'base.py').touch()
  assert installation.find_config('configs/base.py:a') == 'configs/base.py:a'
  # Like the commit of a run.
  assert installation.find_config('configs') == f'{folder}/base.py:configs'


def test_a_config_imports_from_its_folder_then_the_working_directory_then_this_project(
  installed, tmp_path
):
  ours = str(installed / 'attention_commands')
  installation.find_config('mine.py')
  assert sys.path == [ours]
  sys.path.clear()
  Path('configs').mkdir()
  (tmp_path / 'there' / 'configs').mkdir(parents=True)
  for name in (f'{tmp_path}/there/configs/mine.py', 'configs/other.py'):
    installation.find_config(name)
    assert sys.path == [f'{tmp_path}/there', f'{tmp_path}/here', ours]


def test_the_commit_of_an_installed_package_is_the_one_that_pip_took(
  installed, monkeypatch
):
  def install(folder, origin):
    monkeypatch.setattr(
      importlib.metadata,
      'distribution',
      lambda _: types.SimpleNamespace(
        locate_file=lambda name: folder / name, read_text=lambda _: origin
      ),
    )

  monkeypatch.setattr(run_directory, 'TOP', installed)
  install(installed, '{"vcs_info": {"commit_id": "abc"}}')
  assert run_directory.commit() == 'abc'
  install(installed.parent, '{"vcs_info": {"commit_id": "abc"}}')  # Another copy.
  assert run_directory.commit() == 'unknown'
  for origin in ('{"dir_info": {}}', None):
    install(installed, origin)
    assert run_directory.commit() == 'unknown'
