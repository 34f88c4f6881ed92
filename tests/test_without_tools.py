"""The core and the launchers know no tool: they import none, and work with none.

`train.py` is above the tools. Its check imports the summary of a job if that tool is there.
"""

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAUNCHERS = sorted((ROOT / 'launch').rglob('*.py'))
CORE = [
  path
  for base in ('transformer', 'tests')
  for path in sorted((ROOT / base).rglob('*.py'))
  if path.relative_to(ROOT).parts[1] != 'tools'
] + [ROOT / 'train.py', ROOT / 'eval.py']
OPTIONAL = {
  ROOT / 'train.py': 'from transformer.tools.summary.printing import print_summary'
}


def text_of(path):
  """Returns a file without its import of a tool that may be absent."""
  return path.read_text('utf-8').replace(OPTIONAL.get(path, '\0'), 'pass')


def test_neither_the_core_nor_launchers_nor_their_tests_import_a_tool():
  for path in (
    path for path in [*CORE, *LAUNCHERS] if 'tools' in path.read_text('utf-8')
  ):
    for node in ast.walk(ast.parse(text_of(path))):  # Imports inside functions, too.
      names = []
      if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
      elif isinstance(node, ast.ImportFrom):
        names = [node.module, *(f'{node.module}.{alias.name}' for alias in node.names)]
      assert not [name for name in names if name.split('.')[1:2] == ['tools']], (
        path,
        names,
      )


def test_launchers_can_be_imported_without_tools():
  names = ['.'.join(path.relative_to(ROOT).with_suffix('').parts) for path in LAUNCHERS]
  code = f"""
import importlib, sys
from absl import flags
sys.modules['transformer.tools'] = None
for name in {names}:
  importlib.import_module(name)
  for flag in list(flags.FLAGS):
    delattr(flags.FLAGS, flag)  # Several launchers define a flag of the same name.
"""
  subprocess.run([sys.executable, '-c', code], cwd=ROOT, check=True)


def test_the_core_and_launchers_name_no_tool():
  # An example in the docstring of a setting is a value that a user may give.
  allowed = {ROOT / 'transformer/training/config.py'}
  for path in [*CORE, *LAUNCHERS]:
    if 'tests' not in path.relative_to(ROOT).parts and path not in allowed:
      assert not re.search(r"""(transformer[./]|["'])tools[./]\w""", text_of(path)), (
        path
      )


@pytest.mark.parametrize(
  ('flags', 'status', 'message'),
  [((), 0, 'no summary of the job'), (('--json',), 1, '--json needs')],
)
def test_a_check_without_the_tool_for_summaries_says_so(
  tmp_path, flags, status, message
):
  code = """
import sys
sys.modules['transformer.tools'] = None
import train
train.start()
"""
  done = subprocess.run(
    [
      *(sys.executable, '-c', code, '--config=configs/quickstart.py', '--check'),
      *('--read_data=false', f'--workdir={tmp_path}/run', *flags),
    ],
    cwd=ROOT,
    check=False,
    text=True,
    capture_output=True,
  )
  assert done.returncode == status, done.stderr
  assert done.stdout == ''
  assert len([line for line in done.stderr.splitlines() if message in line]) == 1


@pytest.fixture(scope='module')
def removal(tmp_path_factory):
  """Returns the functions of the script that removes tools, and a copy without any."""
  script = runpy.run_path(str(ROOT / '.ci' / 'remove_tools.py'))
  copy = tmp_path_factory.mktemp('without') / 'checkout'
  script['copy_without'](script['tools'](), copy)
  return script, copy


@pytest.mark.long
def test_without_tools_a_run_is_trained_and_scored(removal):
  script, copy = removal
  assert not (copy / 'transformer' / 'tools').exists()
  assert '\n  BLEU ' in script['train_and_score'](copy)


@pytest.mark.long
def test_without_tools_all_tests_of_the_core_pass(removal):
  script, copy = removal
  # Tests of launchers train on the phrasebook, which is a tool; benchmarks use several tools.
  script['test'](
    copy,
    'tests',
    *(
      f'--ignore=tests/{name}'
      for name in ('launch', 'benchmarks', 'test_without_tools.py')
    ),
  )
