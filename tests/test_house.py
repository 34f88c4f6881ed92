"""Rooms import only earlier rooms, and one file imports each package."""

import ast
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / 'transformer'
FILES = {'.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__'): path
         for path in sorted(PACKAGE.rglob('*.py'))}
# Each room imports only from itself and from rooms before it.
ROOMS = ('ops', 'model', 'data', 'training', 'runs', 'decoding', 'evaluation', 'experiment',
         'commands', 'tools')
# Every room may import these, and each of these only those before it.
FOUNDATIONS = ('transformer.errors', 'transformer.old_settings', 'transformer.settings',
               'transformer.files', 'transformer.own_code', 'transformer.config',
               'transformer.system')
DATA_PACKAGES = ('tensorflow_datasets', 'sentencepiece')


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
  return {name for name in found if name.split('.')[0] not in sys.stdlib_module_names
          and not (name in FILES and FILES[name].name == '__init__.py')}


IMPORTS = {name: imports_of(path) for name, path in FILES.items()}


def room_of(name):
  parts = name.split('.')
  return parts[1] if len(parts) > 1 and parts[1] in ROOMS else None


def is_config(name):
  """Returns whether a module holds the dataclasses of groups of settings."""
  return name.split('.')[-1] == 'config'


def foundation_of(name):
  """Returns the index of a module's package in `FOUNDATIONS`; None for a module of a room."""
  places = [place for place, each in enumerate(FOUNDATIONS)
            if name == each or name.startswith(f'{each}.')]
  return places[0] if places else None


def importers(package):
  return {name for name, imports in IMPORTS.items()
          if any(each.split('.')[0] == package for each in imports)}


def ours(name):
  return {each for each in IMPORTS[name] if each.split('.')[0] == 'transformer'}


def test_the_house_is_read():
  assert {room_of(name) for name in FILES} | {'tools'} == {None, *ROOMS}  # Tools may be absent.
  assert 'transformer.runs.run_directory' in IMPORTS['transformer.runs.loading']
  assert 'transformer.data.batch' in IMPORTS['transformer.training.step']
  # Inside a function.
  assert 'transformer.data.text.tfds_sets' in IMPORTS['transformer.data.text.sources']


@pytest.mark.parametrize('name', [name for name in FILES if room_of(name)])
def test_a_room_imports_from_itself_and_from_rooms_before_it(name):
  place = ROOMS.index(room_of(name))
  for each in ours(name):
    assert foundation_of(each) is not None or ROOMS.index(room_of(each)) <= place, (
        f'{name} imports {each}')


@pytest.mark.parametrize('name', [name for name in FILES if foundation_of(name) is not None])
def test_foundations_import_no_room(name):
  for each in ours(name):
    place = foundation_of(each)
    assert (place is not None and place <= foundation_of(name)) or (
        name == 'transformer.config' and is_config(each)), f'{name} imports {each}'


def test_settings_import_errors_alone():
  for name in FILES:
    if is_config(name) and room_of(name):
      assert IMPORTS[name] <= {'transformer.errors', 'transformer.settings'}, name


def test_no_two_modules_import_each_other():
  for name in FILES:
    seen, ahead = set(), ours(name) & FILES.keys()
    while ahead:
      assert name not in ahead, f'{name} imports itself by way of others'
      seen |= ahead
      ahead = set().union(*(ours(each) & FILES.keys() for each in ahead)) - seen


def test_data_knows_neither_the_model_nor_jax():
  for name in FILES:
    if room_of(name) == 'data':
      assert all(room_of(each) in ('data', None) for each in ours(name)), name
      assert not IMPORTS[name] & {'transformer.config'}, name
      assert not {each.split('.')[0] for each in IMPORTS[name]} & {'jax', 'flax', 'optax'}, name


@pytest.mark.parametrize('package', DATA_PACKAGES)
def test_of_the_road_only_data_touches_text_packages(package):
  assert {room_of(name) for name in importers(package)} - {'tools'} == {'data'}


@pytest.mark.parametrize(('package', 'file'), [
    ('sacrebleu', 'transformer.evaluation.metrics'),
    ('sacremoses', 'transformer.evaluation.metrics'),
    ('matplotlib', 'transformer.tools.plot.curves'),
    ('ctranslate2', 'transformer.tools.convert.ctranslate2_format'),
    ('safetensors', 'transformer.tools.convert.safetensors_format')])
def test_one_file_touches_a_package(package, file):
  # Tools may be absent. Those that score use sacreBLEU, too.
  tools = {'transformer.tools.compare.significance'} if package == 'sacrebleu' else set()
  assert importers(package) == (tools | {file}) & FILES.keys()


def test_orbax_stays_in_the_checkpoints():
  assert importers('orbax') == {'transformer.runs.checkpoints', 'transformer.runs.orbax_manager'}


def test_flax_stays_in_the_model():
  assert {room_of(name) for name in importers('flax')} == {'model'}


def test_nothing_imports_what_is_at_the_top():
  above = {path.stem for path in ROOT.glob('*.py')} | {
      'configs', 'launch', 'tests', 'benchmarks', 'attention_commands'}
  assert {'train', 'eval'} <= above
  for name, imports in IMPORTS.items():
    assert not {each.split('.')[0] for each in imports} & above, name


@pytest.mark.parametrize('folder', ['.', 'launch', 'benchmarks', 'docs'])
def test_scripts_say_where_their_modules_are(folder):
  # With PYTHONSAFEPATH=1, Python does not look beside a script.
  beside = {path.stem for path in (ROOT / folder).iterdir()}
  for path in (ROOT / folder).glob('*.py'):
    text = path.read_text('utf-8')
    imports = {match[1]: match.start()
               for match in re.finditer(r'^(?:from|import) (\w+)', text, re.MULTILINE)
               if match[1] in beside | {'transformer', 'launch'}}
    if "__name__ == '__main__'" in text and imports:
      folders = {name in beside for name in imports}
      assert len(re.findall(r'sys\.path\.\w', text[:min(imports.values())])) >= len(folders), path


def test_config_dicts_stay_out():
  assert {room_of(name) for name in importers('ml_collections')} <= {'commands', 'tools'}


def test_step_and_search_need_no_package_that_reads_text():
  code = ('import sys; import transformer.training.step, transformer.decoding.translator, '
          'transformer.ops.search; '
          f'print(*({{*{(*DATA_PACKAGES, "sacrebleu", "ml_collections", "orbax")!r}}} '
          '& sys.modules.keys()))')
  done = subprocess.run([sys.executable, '-c', code], check=True, cwd=ROOT, text=True,
                        capture_output=True)
  assert done.stdout.split() == []


@pytest.mark.parametrize('script', ['train.py', 'eval.py', *(
    str(path.relative_to(ROOT)) for room in ('commands', 'tools')
    for path in sorted((PACKAGE / room).rglob('*.py'))
    if "__name__ == '__main__'" in path.read_text('utf-8'))])
def test_a_command_imports_jax_only_when_its_flags_are_read(script):
  # JAX reads its variables at its import, such as that for the folder of compiled programs.
  code = f'import runpy, sys; runpy.run_path({script!r}, run_name="x"); print("jax" in sys.modules)'
  done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, check=True, capture_output=True,
                        text=True)
  assert done.stdout == 'False\n'
