"""The command checks a model that a config names, in a separate process."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def start(folder, *arguments, **environment):
  """Runs the command where a user's module lies."""
  return subprocess.run(
    [sys.executable, *arguments],
    cwd=folder,
    capture_output=True,
    text=True,
    check=False,
    env={**os.environ, 'PYTHONPATH': str(ROOT), **environment},
  )


@pytest.mark.long
def test_a_model_is_checked_with_eight_devices_and_the_settings_of_a_config(
  doc_plugins,
):
  done = start(
    doc_plugins,
    '-m',
    'transformer.testing',
    f'--config={ROOT}/configs/quickstart.py',
    '--config.model.module=("my_models:Gru", {"hidden": 5})',
    '--config.model.dropout=0.2',
  )
  assert done.returncode == 0, done.stdout + done.stderr
  assert '12 passed' in done.stdout


@pytest.mark.long
def test_a_broken_model_fails_with_one_sentence_under_plain_pytest(tmp_path):
  (tmp_path / 'mine.py').write_text(
    'from transformer.model.transformer import Transformer\n\n\nclass Model(Transformer):\n'
    '  def __call__(self, *batch, deterministic=True):\n'
    '    return super().__call__(*batch, deterministic=False)\n',
    'utf-8',
  )
  done = start(
    tmp_path,
    '-m',
    'pytest',
    '--pyargs',
    'transformer.testing',
    '-k',
    'dropout',
    TESTED_MODEL='mine:Model',
  )
  assert done.returncode == 1, done.stdout + done.stderr
  assert (
    'no dropout key the model fails' in done.stdout and 'Traceback' not in done.stdout
  )


@pytest.mark.parametrize(
  ('arguments', 'facts'),
  [
    (
      [
        '--config=configs/quickstart.py',
        '--config.model.module=("my_models:Gru", {"hidden": 5})',
      ],
      ['my_models:Gru', "'hidden': 5", ' norm_position=pre'],
    ),
    (
      ['--config=configs/modern.py', '--config.model.positions=relative'],
      ["this project's Transformer", ' positions=relative', ' activation=swiglu'],
    ),
  ],
)
def test_the_first_line_names_the_model_and_its_settings(
  doc_plugins, tmp_path, arguments, facts
):
  # The checks themselves take a minute.
  (tmp_path / 'pytest.py').write_text('def main(_):\n  print("checks")\n')
  arguments[0] = arguments[0].replace('configs', f'{ROOT}/configs')
  paths = f'{tmp_path}:{ROOT}:{doc_plugins}'
  done = start(tmp_path, '-m', 'transformer.testing', *arguments, PYTHONPATH=paths)
  assert done.returncode == 0, done.stderr
  first, *others = done.stdout.splitlines()
  assert others == ['checks']
  assert all(fact in first for fact in facts), first


@pytest.mark.parametrize(
  ('arguments', 'fact'),
  [
    (['--model=nowhere:Model'], 'nowhere:Model cannot be imported'),
    (['--config.model.num_layers=2'], 'pass --config=configs/NAME.py, too'),
    (
      [
        f'--config={ROOT}/configs/quickstart.py',
        '--config.model.module=("transformer.model.transformer:Transformer", {"hidden": 5})',
        '--model=transformer.model.transformer:Transformer',
      ],
      "argument 'hidden'",
    ),
  ],
)
def test_user_error_is_a_one_line_message(tmp_path, arguments, fact):
  done = start(tmp_path, '-m', 'transformer.testing', *arguments)
  assert (done.returncode, done.stdout) == (1, '')
  assert fact in done.stderr and done.stderr.count('\n') == 1


def test_without_pytest_the_command_is_a_one_line_error(tmp_path):
  hidden = (
    'import importlib.util, runpy, sys; find = importlib.util.find_spec\n'
    'importlib.util.find_spec = lambda name, *more: None if name == "pytest" '
    'else find(name, *more)\n'
    'runpy.run_module("transformer.testing", run_name="__main__", alter_sys=True)'
  )
  done = start(tmp_path, '-c', hidden)
  assert done.returncode == 1 and done.stderr.count('\n') == 1
  assert 'pip install pytest' in done.stderr
