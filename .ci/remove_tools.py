"""Checks that the code works without each tool: removes one tool at a time from a copy.

  python .ci/remove_tools.py            # every tool
  python .ci/remove_tools.py NAME …     # these

A tool is its folder or file, its tests, and its rows in pyproject.toml; files that begin with `_`
are shared by several tools. Without a tool, the tests of the layout pass, and a tiny run is trained
and scored. tests/test_without_tools.py removes all tools.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYOUT_TESTS = (
  'tests/test_import_order.py',
  'tests/test_package.py',
  'tests/test_config_files.py',
)
COPIED = (
  'train.py',
  'eval.py',
  'setup.py',
  'pyproject.toml',
  'requirements.txt',
  'constraints.txt',
  'README.md',
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  'CITATION.cff',
  'LICENSE',
  '.ci',
  'configs',
  'transformer',
  'launch',
  'benchmarks',
  'docs',
  'tests',
)
_TINY = (
  'data.vocabulary_size=300',
  'data.max_length=64',
  'model.num_layers=1',
  'model.ff_dim=8',
  'model.model_dim=8',
  'model.num_heads=2',
  'train.steps=2',
  'train.checkpoint_every=2',
  'train.eval_every=2',
  'train.tokens_per_batch=320',
  'decode.max_extra_length=3',
)


def tools() -> list[str]:
  """Returns the names of all tools."""
  return sorted(
    path.stem
    for path in (ROOT / 'transformer' / 'tools').iterdir()
    if not path.name.startswith('_')
  )


def copy_without(names: Collection[str], copy: Path):
  """Copies the checkout without some tools, their tests and their rows."""
  copy.mkdir()
  for name in COPIED:
    if (ROOT / name).is_dir():
      shutil.copytree(
        ROOT / name, copy / name, ignore=shutil.ignore_patterns('__pycache__')
      )
    else:
      shutil.copy(ROOT / name, copy)
  rows = (copy / 'pyproject.toml').read_text('utf-8')
  for name in names:
    for path in (
      f'transformer/tools/{name}',
      f'transformer/tools/{name}.py',
      f'tests/tools/{name}',
      f'tests/tools/test_{name}.py',
    ):
      if (copy / path).is_dir():
        shutil.rmtree(copy / path)
      else:
        (copy / path).unlink(missing_ok=True)
    rows = re.sub(
      rf'^\S+ = "transformer\.tools\.{name}[.:].*\n', '', rows, flags=re.MULTILINE
    )
  if set(names) == set(tools()):
    shutil.rmtree(copy / 'transformer' / 'tools')
    shutil.rmtree(copy / 'tests' / 'tools')
  (copy / 'pyproject.toml').write_text(rows, 'utf-8')


def train_and_score(copy: Path) -> str:
  """Trains and scores a tiny run with the code of a copy; returns what eval.py prints."""
  text = copy / 'text'
  text.mkdir()
  for split, count in (('train', 12), ('valid', 2), ('test', 2)):
    for language, words in (
      ('en', 'a man climbs rock number'),
      ('de', 'ein mann klettert auf'),
    ):
      lines = (f'{words} {number} {split}\n' * 3 for number in range(count))
      (text / f'{split}.{language}').write_text(''.join(lines), 'utf-8')
  _run(
    copy,
    'train.py',
    '--config=configs/text.py',
    '--workdir=run',
    f'--config.data.dir={text}',
    '--config.data.source_language=en',
    '--config.data.target_language=de',
    *(f'--config.{setting}' for setting in _TINY),
  )
  return _run(copy, 'eval.py', '--workdir=run', '--beam_size=2')


def test(copy: Path, *arguments: str):
  """Runs tests of a copy."""
  _run(
    copy, '-m', 'pytest', '-q', '-m', 'not long', '-p', 'no:cacheprovider', *arguments
  )


def _run(copy: Path, *arguments: str) -> str:
  """Runs Python in a copy; returns its output, and ends with all of it if that fails."""
  done = subprocess.run(
    [sys.executable, *arguments],
    cwd=copy,
    check=False,
    text=True,
    capture_output=True,
    stdin=subprocess.DEVNULL,
    env={
      **os.environ,
      'PYTHONPATH': str(copy),
      'JAX_PLATFORMS': 'cpu',
      'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',
    },
  )
  if done.returncode:
    sys.exit(
      f'python {" ".join(arguments)} fails in {copy}:\n{done.stdout[-9000:]}\n{done.stderr}'
    )
  return done.stdout


def main(names: Collection[str]):
  """Tries the removal of tools."""
  for name in names or tools():
    with tempfile.TemporaryDirectory() as folder:
      copy = Path(folder, 'checkout')
      copy_without([name], copy)
      test(copy, *LAYOUT_TESTS)
      (score,) = (
        line
        for line in train_and_score(copy).splitlines()
        if line.startswith('  BLEU ')
      )
      print(f'without {name}:{score}', flush=True)


if __name__ == '__main__':
  main(sys.argv[1:])
