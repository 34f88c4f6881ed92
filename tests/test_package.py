"""The installed package has all of its modules, data, configs and commands, and works anywhere."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import venv

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.sentences import english_and_french

ROOT = pathlib.Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text('utf-8'))
SCRIPTS = PYPROJECT['project']['scripts']
TINY = [
  f'--config.{key}={value}'
  for key, value in {
    'data.dir': '.',
    'data.source_language': 'en',
    'data.target_language': 'fr',
    'data.vocabulary_size': 400,
    'model.num_layers': 1,
    'model.model_dim': 16,
    'model.ff_dim': 16,
    'model.num_heads': 2,
    'optimizer.schedule': 'inverse_sqrt',
    'train.tokens_per_batch': 512,
    'train.eval_every': 4,
    'train.checkpoint_every': 2,
  }.items()
]


def test_every_folder_of_modules_is_a_package_and_every_data_file_is_installed():
  folders = {path.parent for path in (ROOT / 'transformer').rglob('*.py')}
  assert all((folder / '__init__.py').exists() for folder in folders)
  listed = {
    path
    for pattern in PYPROJECT['tool']['setuptools']['package-data']['transformer']
    for path in (ROOT / 'transformer').glob(pattern)
  }
  files = {
    path
    for path in (ROOT / 'transformer').rglob('*')
    if path.is_file() and path.suffix not in ('.py', '.pyc')
  }
  assert listed == files


def test_every_command_is_a_console_command():
  modules = {f'attention_commands.{name}' for name in ('train', 'eval')} | {
    '.'.join(path.relative_to(ROOT).with_suffix('').parts)
    for package in ('cli', 'tools')
    for path in (ROOT / 'transformer' / package).rglob('*.py')
    if re.search(r'command_line\.(run|entry_point)\(', path.read_text('utf-8'))
  }
  assert {f'{module}:start' for module in modules} == {*SCRIPTS.values()}
  assert all(name == spelled(value) for name, value in SCRIPTS.items())


def spelled(value):
  """Returns the name of a console command in the command's help."""
  return f'attention-{value.removesuffix(":start").removesuffix(".__main__").rpartition(".")[2]}'


@pytest.mark.parametrize('python', ['3.11', '3.13'])
def test_constraints_have_one_version_of_every_requirement_and_it_is_allowed(python):
  def requirements_of(path):
    lines = [
      line.partition('#')[0].strip() for line in path.read_text('utf-8').splitlines()
    ]
    requirements = [
      Requirement(line) for line in lines if line and not line.startswith('-r')
    ]
    return [
      requirement
      for requirement in requirements
      if not requirement.marker
      or requirement.marker.evaluate(
        {'python_version': python, 'python_full_version': f'{python}.0'}
      )
    ]

  pins = {}
  for pin in requirements_of(ROOT / 'constraints.txt'):
    pins.setdefault(canonicalize_name(pin.name), []).append(str(pin.specifier))
  files = [
    ROOT / 'requirements.txt',
    *(ROOT / package / 'requirements.txt' for package in ('launch', 'tests')),
    *(ROOT / 'transformer' / 'tools').glob('*/requirements.txt'),
  ]
  for requirement in [
    requirement for path in files for requirement in requirements_of(path)
  ]:
    # If this fails, update the constraints: bash launch/constraints.sh
    (version,) = pins[canonicalize_name(requirement.name)]
    assert version.startswith('==') and version[2:] in requirement.specifier, (
      requirement
    )


@pytest.fixture(scope='module')
def checkout(tmp_path_factory):
  """Returns a repository with a commit of the files of this checkout."""
  checkout = tmp_path_factory.mktemp('repository') / 'checkout'
  shutil.copytree(
    ROOT,
    checkout,
    ignore=lambda folder, names: [
      name
      for name in names
      if name in ('.git', '__pycache__')
      or name.startswith('.venv')
      or (folder == str(ROOT) and name in ('data', 'runs', 'build'))
    ],
  )
  for arguments in (
    'init',
    'add .',
    '-c user.name=A -c user.email=a@b commit --message=all',
  ):
    subprocess.run(
      ['git', *arguments.split()], cwd=checkout, check=True, capture_output=True
    )
  return checkout


@pytest.fixture
def install(checkout):
  """Returns a function that installs into a new virtual environment, which is in the checkout.

  The environment finds the packages, pip and setuptools of this interpreter behind its own.
  """
  environment = checkout / '.venv'
  venv.create(environment, clear=True, symlinks=True)
  (site,) = (environment / 'lib').glob('python*/site-packages')
  others = [folder for folder in sys.path if folder.endswith('-packages')]
  (site / 'others.pth').write_text('\n'.join(others), 'utf-8')

  def install(*arguments):
    subprocess.run(
      [
        environment / 'bin' / 'python',
        '-m',
        'pip',
        'install',
        '--quiet',
        '--disable-pip-version-check',
        '--no-deps',
        '--no-build-isolation',
        *arguments,
      ],
      check=True,
    )
    return site

  return install


@pytest.fixture
def command(checkout, tmp_path, monkeypatch):
  """Returns a function that runs an installed command in an empty folder, and its output."""
  monkeypatch.chdir(tmp_path)
  environment = {**os.environ, 'JAX_PLATFORMS': 'cpu'}
  environment.pop('PYTHONPATH', None)

  def run(name, *arguments):
    done = subprocess.run(
      [checkout / '.venv' / 'bin' / name, *arguments],
      check=False,
      text=True,
      capture_output=True,
      env=environment,
      stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout, done.stderr

  return run


@pytest.mark.long
def test_installed_from_a_repository_it_trains_resumes_and_scores(
  checkout, install, command
):
  site = install(f'git+file://{checkout}')
  installed = {
    path.relative_to(site)
    for name in ('transformer', 'attention_commands')
    for path in (site / name).rglob('*')
    if path.is_file() and path.suffix != '.pyc'
  }
  package = {
    path.relative_to(checkout)
    for path in (checkout / 'transformer').rglob('*')
    if path.is_file()
  }
  top = [
    checkout / 'train.py',
    checkout / 'eval.py',
    *(checkout / 'configs').glob('*.py'),
  ]
  assert installed == package | {
    pathlib.Path('attention_commands', path.relative_to(checkout)) for path in top
  }

  for split, pairs in (('train', 200), ('valid', 8), ('test', 8)):
    for language, lines in zip(('en', 'fr'), english_and_french(pairs), strict=True):
      pathlib.Path(f'{split}.{language}').write_text('\n'.join([*lines, '']), 'utf-8')
  train = ['attention-train', '--config=configs/text.py', '--workdir=run', *TINY]
  ours = {path.name for path in (ROOT / 'transformer').rglob('*.py')} | {'train.py'}
  for steps, fact in (
    (4, 'score it with: attention-eval --workdir=run\n'),
    (6, 'step 4 of 6'),
  ):
    status, _, log = command(*train, f'--config.train.steps={steps}')
    assert status == 0 and fact in log, log
    # All lines are of this project.
    assert ours.issuperset(
      re.findall(r'^[IW]\d{4} .*? (\w+\.py):', log, re.MULTILINE)
    ), log

  about = json.loads(pathlib.Path('run', 'run.json').read_text('utf-8'))
  assert about['command'][:2] == ['attention-train', '--config=configs/text.py']
  # The installed commit, although the environment is in a repository.
  commit = subprocess.run(
    ['git', 'rev-parse', 'HEAD'],
    cwd=checkout,
    check=True,
    text=True,
    capture_output=True,
  ).stdout.strip()
  assert about['commit'] == commit
  assert [session['commit'] for session in about['resumed']] == [commit]

  status, out, err = command('attention-eval', '--workdir=run', '--beam_size=1')
  assert status == 0 and '\n  BLEU ' in out, err
  if 'attention-attend' in SCRIPTS:  # It reads the page's files, which are not modules.
    status, out, err = command(
      'attention-attend', '--workdir=run', '--sentence=The cats.'
    )
    assert status == 0 and pathlib.Path('run', 'eval', 'attention.html').exists(), err


@pytest.mark.long
def test_installed_in_place_it_takes_the_configs_of_the_checkout(
  checkout, install, command, one_error
):
  install('--editable', str(checkout))
  code = 'import sys, transformer; sys.exit(transformer.__file__)'
  assert command('python', '-c', code)[2].strip() == str(
    checkout / 'transformer' / '__init__.py'
  )

  for name, value in SCRIPTS.items():
    status, out, err = command(name, '--help')
    assert (status, err) == (0, '') and re.search(
      rf'^ *{spelled(value)} ', out, re.MULTILINE
    )
  check = ['attention-train', '--workdir=run', '--check', '--read_data=false']
  pathlib.Path('mine.py').write_text(
    'from configs.multi30k_tiny import get_config\n', 'utf-8'
  )
  for config in ('configs/tatoeba.py:cpu', 'mine.py'):
    status, _, log = command(*check, f'--config={config}')
    assert status == 0 and 'flags and config are valid' in log
  refused = one_error(command(*check, '--config=configs/none.py')[2])
  assert f'the current folder is {os.getcwd()}' in refused
  assert refused.endswith(f"this project's configs are in {checkout}/configs")
