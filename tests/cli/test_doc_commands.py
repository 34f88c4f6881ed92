"""Every command in the README and in docs/ runs, on less text and in fewer steps."""

import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import pytest

from tests.test_notebooks import NOTEBOOKS, RUN

pytestmark = pytest.mark.long
ROOT = pathlib.Path(__file__).parents[2]
# The data page comes first, since it makes the text that the README trains on.
PAGES = (
  'docs/data.md',
  'README.md',
  *sorted(
    str(page.relative_to(ROOT))
    for page in (ROOT / 'docs').glob('*.md')
    if page.name != 'data.md'
  ),
)


def blocks_of(page, language):
  """Returns the code blocks of a page."""
  text = (ROOT / page).read_text('utf-8')
  return [
    block.rstrip('\n')
    for block in re.findall(
      rf'^```{language}\n(.*?)^```', text, re.MULTILINE | re.DOTALL
    )
  ]


BLOCKS = {
  f'{page}-{number}': block
  for page in PAGES
  for number, block in enumerate(blocks_of(page, 'sh'))
}
# By what the block has in it: the file that runs it instead, and by which words.
ELSEWHERE = {
  'bash launch/quickstart.sh': ('.ci/run', 'bash launch/quickstart.sh "$folder/run"'),
  'transformer.tools.download': (
    'tests/tools/test_download.py',  # Downloads.
    "'-m', 'transformer.tools.download'",
  ),
  'attention-train': ('tests/test_package.py', "['attention-train', "),
  'launch/table3.py': ('tests/launch/test_table3.py', "start_command('launch.table3')"),
  'launch/sweep.py': ('tests/launch/sweep_sandbox.py', "'launch' / 'sweep.py'"),
  'chromium': ('tests/tools/attend/browser.py', 'CHROMIUM,'),
  'benchmarks.gpu_costs': (
    'tests/benchmarks/gpu_costs/test_gpu_costs.py',  # GPUs' compiler.
    "start_command('benchmarks.gpu_costs.__main__')",
  ),
  'benchmarks.tpu_costs': (
    'tests/benchmarks/tpu_costs/test_tpu_costs.py',  # TPUs' compiler.
    "start_command('benchmarks.tpu_costs.__main__')",
  ),
}
# Checks the commands for hosts of a cloud, and starts nothing.
GCLOUD = """#!/bin/bash
for argument; do
  [[ $argument != --command=* ]] || bash -n -c "${argument#--command=}" || exit
done
"""
CUT = ' '.join(
  f'--config.{key}={value}'
  for key, value in {
    'data.vocabulary_size': 400,
    'data.max_length': 64,
    'model.num_layers': 1,
    'model.model_dim': 16,
    'model.ff_dim': 16,
    'model.num_heads': 2,
    'optimizer.warmup_steps': 2,
    'train.tokens_per_batch': 512,
    'train.steps': 4,
    'train.checkpoint_every': 2,
    'train.eval_every': 4,
    'decode.max_extra_length': 2,
    'decode.batch_size': 8,
  }.items()
)


@pytest.fixture(scope='module')
def sandbox(folder, train, evaluate, doc_plugins, tmp_path_factory):
  """A directory with the runs and files that the pages name, and the project itself."""
  sandbox = tmp_path_factory.mktemp('documentation')
  for name in (
    'train.py',
    'eval.py',
    'transformer',
    'configs',
    'launch',
    'benchmarks',
    'docs',
  ):
    (sandbox / name).symlink_to(ROOT / name)
  status, _, err = train(
    f'--config={folder}/tiny.py',
    f'--workdir={sandbox}/RUN_A',
    '--config.train.steps=10',
    '--config.train.keep=10',
  )
  assert status == 0, err
  status, _, err = evaluate(f'--workdir={sandbox}/RUN_A')
  assert status == 0, err
  for name in ('RUN', 'RUN_A2', 'RUN_B', 'RUN_B2', 'runs/quickstart'):
    shutil.copytree(sandbox / 'RUN_A', sandbox / name)
  for name, source in (
    ('FILE', 'test.en'),
    ('in.txt', 'test.en'),
    ('FILE2', 'test.de'),
  ):
    shutil.copy(folder / source, sandbox / name)
  pairs = (folder / 'test.en').read_text('utf-8').count('\n')
  (sandbox / 'GOLD').write_text('0-0\n' * pairs)
  (sandbox / 'FILE4').write_text('quark\n')
  (sandbox / 'FILE5').write_text('der\n' * pairs)
  words = random.Random(0)
  for language in ('en', 'de'):
    lines = (
      ' '.join(''.join(words.choices('abcdefghij', k=7)) for _ in range(8))
      for _ in range(2060)
    )
    (sandbox / f'all.{language}').write_text(''.join(f'{line}\n' for line in lines))
  for path in doc_plugins.iterdir():
    shutil.copy(path, sandbox)
  (sandbox / 'tables').mkdir()
  for split, count in (('train', 400), ('valid', 2), ('test', 2)):
    rows = [
      ' '.join(''.join(words.choices('abcdefghij', k=7)) for _ in range(4))
      for _ in range(count)
    ]
    for ending, between in (('csv', ','), ('tsv', '\t')):
      (sandbox / 'tables' / f'{split}.{ending}').write_text(
        ''.join(f'{row}{between}{row}\n' for row in rows)
      )
  (sandbox / 'mytrees').mkdir()
  for split, count in (('train', 400), ('dev', 3), ('test', 3)):
    nouns = [''.join(words.choices('abcdefghij', k=7)) for _ in range(count)]
    (sandbox / 'mytrees' / f'{split}.mrg').write_text(
      ''.join(
        f'( (S (NP-SBJ (DT the) (NN {noun}))\n     (VP (VBZ is))) )\n' for noun in nouns
      )
    )
  (sandbox / 'bin').mkdir()
  (sandbox / 'bin' / 'gcloud').write_text(GCLOUD)
  (sandbox / 'bin' / 'gcloud').chmod(0o755)
  (sandbox / 'words.txt').write_text(''.join(f'the {noun} is\n' for noun in nouns))
  return sandbox


def shortened(block):
  """The block with less work, and without commands that install packages."""
  block = re.sub(r' *\\\n *', ' ', block)
  lines = [
    line
    for line in block.splitlines()
    if not line.startswith(('pip install', 'git bundle'))
  ]
  for place, line in enumerate(lines):
    line = re.sub(r'\s+#.*', '', line)
    if line.startswith(('python train.py', 'python launch/local.py')):
      line = line if '--check' in line else f'{line} {CUT}'
    elif line.startswith('python launch/slurm.py'):
      line = line.replace(' -- ', ' --dry_run -- --read_data=false ')
    lines[place] = line
  return '\n'.join(lines)


@pytest.mark.parametrize('name', ELSEWHERE)
def test_commands_that_other_tests_run_are_on_a_page(name):
  assert any(name in block for block in BLOCKS.values())
  file, words = ELSEWHERE[name]
  assert words in (ROOT / file).read_text('utf-8')


def run(command, sandbox, devices=1):
  """Runs a command in the sandbox as a user would, on N devices."""
  return subprocess.run(
    command,
    cwd=sandbox,
    capture_output=True,
    text=True,
    timeout=500,
    check=False,
    env={
      **os.environ,
      'PYTHONPATH': str(ROOT),
      'PATH': f'{sandbox}/bin:{pathlib.Path(sys.executable).parent}:{os.environ["PATH"]}',
      'JAX_PLATFORMS': 'cpu',
      'JAX_NUM_CPU_DEVICES': str(devices),
    },
  )


# In the order of the pages, since one block may begin with what another has left.
@pytest.mark.parametrize(
  'place',
  [
    place
    for place, block in BLOCKS.items()
    if not any(name in block for name in ELSEWHERE)
  ],
)
def test_commands_run_as_they_stand(sandbox, place):
  block = BLOCKS[place]
  done = run(
    ['bash', '-euo', 'pipefail', '-c', shortened(block)],
    sandbox,
    8 if 'fsdp=8' in block else 1,
  )
  assert done.returncode == 0 and 'Traceback' not in done.stderr, (
    f'{block}\n{done.stderr}'
  )


@pytest.mark.parametrize('page', ['README.md', 'docs/python.md'])
def test_the_python_of_a_page_translates_and_returns_losses_with_gradients(
  sandbox, page
):
  for program in blocks_of(page, 'python'):
    checks = (
      """
import math
assert 0 < loss < 2 * math.log(run.vocabulary.size), loss
assert all(0 < abs(leaf).sum() < math.inf for leaf in jax.tree.leaves(gradient))
"""
      if 'loss, gradient' in program
      else ''
    )
    done = run([sys.executable, '-c', program + checks], sandbox)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize('page', [page for page in PAGES if blocks_of(page, 'text')])
def test_the_python_of_a_page_prints_what_the_page_shows(sandbox, page):
  done = run([sys.executable, 'docs/run_pages.py', page], sandbox)
  assert done.returncode == 0, done.stderr


@pytest.mark.parametrize('notebook', NOTEBOOKS, ids=lambda notebook: notebook.name)
def test_a_notebook_runs_from_top_to_bottom(sandbox, notebook):
  done = run([sys.executable, '-c', RUN, notebook], sandbox)
  assert done.returncode == 0, done.stderr


def test_figures_are_generated_and_not_stale(sandbox, tmp_path):
  done = run([sys.executable, 'docs/figures.py'], sandbox)
  assert done.returncode == 0, done.stderr
  done = run(
    [sys.executable, 'docs/figures.py', '--write', '--run', f'--folder={tmp_path}'],
    sandbox,
  )
  assert done.returncode == 0, done.stderr
  shown = {
    path
    for page in PAGES
    for path in re.findall(r'\]\(figures/(\S+?)\)', (ROOT / page).read_text('utf-8'))
  }
  assert {path.name for path in tmp_path.iterdir()} == shown
  assert {path.name for path in (ROOT / 'docs' / 'figures').iterdir()} == shown
