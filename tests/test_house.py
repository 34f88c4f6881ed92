"""Who may import whom."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / 'transformer'
FILES = {'.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__'): path
         for path in sorted(PACKAGE.rglob('*.py'))}
ROOMS = ('ops', 'model', 'data', 'training', 'inference')
ERRORS, WHOLE_FILES = 'transformer.errors', 'transformer.files'
BATCH = 'transformer.data.batch'
# What each room may import besides the standard library: packages, then our own modules.
MAY = {
    'ops': ({'jax', 'numpy'}, ('transformer.ops',)),
    'model': ({'jax', 'numpy', 'flax'}, ('transformer.ops', 'transformer.model', ERRORS)),
    'data': ({'numpy', 'absl', 'grain', 'sentencepiece', 'tensorflow_datasets'},
             ('transformer.data', ERRORS, WHOLE_FILES)),
    'training': ({'jax', 'numpy', 'absl', 'matplotlib', 'optax', 'orbax', 'tensorboardX', 'tqdm'},
                 ('transformer.ops', 'transformer.model', 'transformer.training', BATCH, ERRORS,
                  WHOLE_FILES)),
    'inference': ({'jax', 'numpy', 'absl', 'sacrebleu', 'sacremoses', 'ctranslate2', 'safetensors'},
                  ('transformer.ops', 'transformer.model', 'transformer.inference', BATCH, ERRORS,
                   WHOLE_FILES, 'transformer.training.checkpoints')),
}
# Commands that are kept in the room that they are of: doors, which nothing imports.
COMMANDS = {
    'transformer.data.audit': ('transformer.command_line', 'transformer.config'),
    'transformer.inference.attend': (
        'transformer.command_line', 'transformer.run', 'transformer.data.text_files',
        'transformer.training.mesh', WHOLE_FILES),
    'transformer.inference.compare': ('transformer.command_line',
                                      'transformer.training.run_directory'),
    'transformer.training.plot': ('transformer.command_line',),
    'transformer.inference.export': (
        'transformer.command_line', 'transformer.config', 'transformer.run',
        'transformer.data.vocabulary', 'transformer.training.run_directory')}
DATA_PACKAGES = ('tensorflow_datasets', 'grain', 'sentencepiece')


def imports_of(path):
  """Every module that a file imports, wherever it does so; `from a import b` is a.b if a module."""
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
  return {name for name in found if name.split('.')[0] not in sys.stdlib_module_names
          and not (name in FILES and FILES[name].name == '__init__.py')}


IMPORTS = {name: imports_of(path) for name, path in FILES.items()}


def room_of(name):
  parts = name.split('.')
  return parts[1] if len(parts) > 1 and parts[1] in ROOMS else None


def importers(package):
  return {name for name, imports in IMPORTS.items()
          if any(each.split('.')[0] == package for each in imports)}


def under(name, allowed):
  return any(name == each or name.startswith(f'{each}.') for each in allowed)


def test_the_house_is_read():
  assert {room_of(name) for name in FILES} == {None, *ROOMS}
  assert 'transformer.training.run_directory' in IMPORTS['transformer.run']
  assert BATCH in IMPORTS['transformer.training.step']
  assert 'transformer.data.tfds_sets' in IMPORTS['transformer.data.sources']  # in a function


@pytest.mark.parametrize('name', [name for name in FILES if room_of(name)])
def test_a_room_imports_what_it_may(name):
  packages, modules = MAY[room_of(name)]
  modules += COMMANDS.get(name, ())
  for each in IMPORTS[name]:
    if each.split('.')[0] == 'transformer':
      assert under(each, modules), f'{name} imports {each}'
    else:
      assert each.split('.')[0] in packages, f'{name} imports {each}'


def test_the_door_knows_the_configs_of_the_rooms_and_nothing_else_of_them():
  assert IMPORTS['transformer.config'] == {
      'transformer.data.config', 'transformer.model.config', 'transformer.training.config',
      'transformer.inference.config', ERRORS}
  assert IMPORTS[ERRORS] == set()
  assert IMPORTS[WHOLE_FILES] == {ERRORS}
  for name in ('data', 'model', 'training', 'inference'):
    assert IMPORTS[f'transformer.{name}.config'] == {ERRORS}


def test_no_room_imports_the_doors():
  doors = {name for name in FILES if room_of(name) is None} - {ERRORS, WHOLE_FILES}
  for name in FILES:
    if room_of(name):
      assert not IMPORTS[name] & {*doors, *COMMANDS} - {*COMMANDS.get(name, ())}, name


@pytest.mark.parametrize('package', DATA_PACKAGES)
def test_only_data_touches_text_packages(package):
  assert importers(package) and {room_of(name) for name in importers(package)} == {'data'}


@pytest.mark.parametrize(('package', 'file'), [
    ('orbax', 'transformer.training.checkpoints'), ('sacrebleu', 'transformer.inference.metrics'),
    ('sacremoses', 'transformer.inference.compounds'),
    ('matplotlib', 'transformer.training.curves'),
    ('ctranslate2', 'transformer.inference.ctranslate2_format'),
    ('safetensors', 'transformer.inference.safetensors_format')])
def test_one_file_touches_a_package(package, file):
  assert importers(package) == {file}


def test_flax_stays_in_the_model():
  assert {room_of(name) for name in importers('flax')} == {'model'}


def test_nothing_imports_what_is_at_the_top():
  above = {path.stem for path in ROOT.glob('*.py')} | {'configs', 'launch', 'tests', 'benchmarks'}
  assert {'train', 'eval'} <= above
  for name, imports in IMPORTS.items():
    assert not {each.split('.')[0] for each in imports} & above, name


def test_the_door_keeps_config_dicts_out():
  assert importers('ml_collections') <= {'transformer.command_line'}


def test_step_and_search_need_no_package_that_reads_text():
  code = ('import sys; import transformer.training.step, transformer.inference.translate, '
          'transformer.ops.search; '
          f'print(*({{*{(*DATA_PACKAGES, "sacrebleu", "ml_collections", "orbax")!r}}} '
          '& sys.modules.keys()))')
  done = subprocess.run([sys.executable, '-c', code], check=True, cwd=ROOT, text=True,
                        capture_output=True)
  assert done.stdout.split() == []
