"""Packages import only earlier packages, and one package imports each library."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / 'transformer'
FILES = {
  '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__'): path
  for path in sorted(PACKAGE.rglob('*.py'))
}
# Each package imports only from itself and from packages before it.
PACKAGES = (
  'ops',
  'model',
  'data',
  'training',
  'runs',
  'decoding',
  'evaluation',
  'experiment',
  'trained_run',
  'cli',
  'testing',
  'tools',
)
# Every package may import these, and each of these only those before it.
FOUNDATIONS = (
  'transformer.errors',
  'transformer.config_fields',
  'transformer.files',
  'transformer.plugins',
  'transformer.config',
  'transformer.system',
)
DATA_LIBRARIES = ('tensorflow_datasets', 'sentencepiece')


def imports_of(path):
  """Returns all modules that a file imports; `from a import b` is a.b if that is a module."""
  found = set()
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if isinstance(node, ast.Import):
      found.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert not node.level, f'{path} has a relative import'
      names = {f'{node.module}.{alias.name}' for alias in node.names}
      found.update((names & FILES.keys()) or {node.module})
      if names - FILES.keys():
        found.add(node.module)
  return {
    name
    for name in found
    if name.split('.')[0] not in sys.stdlib_module_names
    and not (name in FILES and FILES[name].name == '__init__.py')
  }


IMPORTS = {name: imports_of(path) for name, path in FILES.items()}


def package_of(name):
  parts = name.split('.')
  return parts[1] if len(parts) > 1 and parts[1] in PACKAGES else None


def is_config(name):
  """Returns whether a module holds the dataclasses of groups of settings."""
  return name.split('.')[-1] == 'config'


def foundation_of(name):
  """Returns the index of a module's package in `FOUNDATIONS`; None if it is not in these."""
  places = [
    place
    for place, foundation in enumerate(FOUNDATIONS)
    if name == foundation or name.startswith(f'{foundation}.')
  ]
  return places[0] if places else None


def importers(library):
  return {
    name
    for name, imports in IMPORTS.items()
    if any(module.split('.')[0] == library for module in imports)
  }


def ours(name):
  return {module for module in IMPORTS[name] if module.split('.')[0] == 'transformer'}


def behind(names):
  """Returns all modules of the project that some of them import, directly or not."""
  seen, ahead = set(), {module for name in names for module in ours(name)}
  while ahead:
    seen |= ahead
    ahead = {module for name in ahead & FILES.keys() for module in ours(name)} - seen
  return seen


def test_the_imports_are_read():
  assert {package_of(name) for name in FILES} | {'tools'} == {
    None,
    *PACKAGES,
  }  # Tools may be absent.
  assert 'transformer.runs.run_directory' in IMPORTS['transformer.runs.loading']
  # Inside a function.
  assert 'transformer.runs.checkpoint_writer' in IMPORTS['transformer.runs.loading']


def test_packages_and_base_modules_import_only_earlier_ones():
  for name in FILES:
    for module in ours(name):
      place = foundation_of(module)
      if package_of(name):
        allowed = place is not None or PACKAGES.index(
          package_of(module)
        ) <= PACKAGES.index(package_of(name))
      elif foundation_of(name) is not None:
        allowed = (place is not None and place <= foundation_of(name)) or (
          name == 'transformer.config' and is_config(module)
        )
      else:
        continue
      assert allowed, f'{name} imports {module}'


def test_no_two_modules_import_each_other():
  for name in FILES:
    assert name not in behind([name]), f'{name} imports itself by way of others'


def test_data_imports_neither_the_model_nor_jax_and_config_fields_import_only_errors():
  for name in FILES:
    if is_config(name) and package_of(name):
      assert IMPORTS[name] <= {
        'transformer.errors',
        'transformer.config_fields',
        'transformer.plugins',
      }, name
    if package_of(name) == 'data':
      assert all(package_of(module) in ('data', None) for module in ours(name)), name
      assert not {module.split('.')[0] for module in IMPORTS[name]} & {
        'jax',
        'flax',
        'optax',
      }, name
      assert 'transformer.config' not in IMPORTS[name], name


@pytest.mark.parametrize(
  ('library', 'packages'),
  [
    *((library, {'data'}) for library in DATA_LIBRARIES),
    ('flax', {'model'}),
    ('ml_collections', {'cli'}),
    ('sacrebleu', {'evaluation'}),
    ('sacremoses', set()),
    ('orbax', {'runs'}),
    ('matplotlib', set()),
    ('ctranslate2', set()),
    ('safetensors', set()),
    ('wandb', set()),
    ('mlflow', set()),
    ('pytest', {'testing'}),
  ],
)
def test_one_package_imports_a_library(library, packages):
  assert {package_of(name) for name in importers(library)} - {'tools'} == packages


def test_nothing_imports_the_top_level_modules():
  above = {path.stem for path in ROOT.glob('*.py')} | {
    'configs',
    'launch',
    'tests',
    'benchmarks',
    'attention_commands',
  }
  assert {'train', 'eval'} <= above
  for name, imports in IMPORTS.items():
    assert not {module.split('.')[0] for module in imports} & above, name


def test_step_and_search_need_no_library_that_reads_text():
  names = behind(['transformer.training.step', 'transformer.decoding.search_programs'])
  absent = {
    name
    for library in (*DATA_LIBRARIES, 'sacrebleu', 'ml_collections', 'orbax')
    for name in importers(library)
  }
  assert names & absent == set()


def test_commands_import_jax_only_when_their_flags_are_read():
  # JAX reads its variables at its import, such as that for the folder of compiled programs.
  scripts = [
    'train.py',
    'eval.py',
    *(
      str(path.relative_to(ROOT))
      for package in ('cli', 'testing', 'tools')
      for path in sorted((PACKAGE / package).rglob('*.py'))
      if "__name__ == '__main__'" in path.read_text('utf-8')
    ),
  ]
  code = f"""
import os, runpy, sys
import numpy, ml_collections, absl.app
for script in {scripts!r}:
  if not os.fork():
    runpy.run_path(script, run_name='x')
    os._exit('jax' in sys.modules)
  if os.wait()[1]:
    print(script)
"""
  done = subprocess.run(
    [sys.executable, '-c', code], cwd=ROOT, check=True, capture_output=True, text=True
  )
  assert done.stdout == '', done.stderr
