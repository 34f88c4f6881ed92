"""Every command in the README does what it stands there for, on less text and in fewer steps."""

import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long
ROOT = pathlib.Path(__file__).parents[2]
BLOCKS = [block.rstrip('\n') for block in re.findall(
    r'^```sh\n(.*?)^```', (ROOT / 'README.md').read_text('utf-8'), re.MULTILINE | re.DOTALL)]
# By what the block has in it: what runs it instead.
ELSEWHERE = {
    'bash launch/quickstart.sh': '.ci/run',
    'transformer.data.prepare': 'tests/commands/test_wmt14.py',  # Downloads.
    'launch/table3.py': 'tests/commands/test_table3.py',
    'launch/sweep.py': 'tests/commands/test_sweep.py',
    'chromium': 'tests/inference/test_attention_browser.py',
    'launch/compile_for.py': 'tests/commands/test_compile_for.py',  # Needs TPUs' compiler.
}
CUT = ' '.join(f'--config.{key}={value}' for key, value in {
    'data.vocabulary_size': 400, 'data.max_length': 64,
    'model.num_layers': 1, 'model.model_dim': 16, 'model.ff_dim': 16, 'model.num_heads': 2,
    'optimizer.warmup_steps': 2, 'train.tokens_per_batch': 512, 'train.steps': 4,
    'train.checkpoint_every': 2, 'train.eval_every': 4,
    'decode.max_extra_length': 2, 'decode.batch_size': 8}.items())


@pytest.fixture(scope='module')
def sandbox(folder, train, evaluate, tmp_path_factory):
  """A directory in which the README's names are there: runs, files, and the project itself."""
  sandbox = tmp_path_factory.mktemp('readme')
  for name in ('train.py', 'eval.py', 'transformer', 'configs', 'launch', 'benchmarks', 'docs'):
    (sandbox / name).symlink_to(ROOT / name)
  status, _, err = train(f'--config={folder}/tiny.py', f'--workdir={sandbox}/RUN_A',
                         '--config.train.steps=10', '--config.train.keep=10')
  assert status == 0, err
  status, _, err = evaluate(f'--workdir={sandbox}/RUN_A')
  assert status == 0, err
  for name in ('RUN', 'RUN_A2', 'RUN_B', 'RUN_B2', 'runs/quickstart'):
    shutil.copytree(sandbox / 'RUN_A', sandbox / name)
  for name, source in (('FILE', 'test.en'), ('in.txt', 'test.en'), ('FILE2', 'test.de')):
    shutil.copy(folder / source, sandbox / name)
  words = random.Random(0)
  for language in ('en', 'de'):
    lines = (' '.join(''.join(words.choices('abcdefghij', k=7)) for _ in range(8))
             for _ in range(2060))
    (sandbox / f'all.{language}').write_text(''.join(f'{line}\n' for line in lines))
  return sandbox


def shortened(block):
  """The block with less to do, and without what is installed already."""
  block = re.sub(r' *\\\n *', ' ', block)
  lines = [line for line in block.splitlines() if not line.startswith('pip install')]
  for place, line in enumerate(lines):
    line = re.sub(r'\s+#.*', '', line)
    if line.startswith(('python train.py', 'python launch/local.py')):
      line = f'{line} {CUT}'
    elif line.startswith(('python launch/slurm.py', 'python launch/tpu.py')):
      line = line.replace(' -- ', ' --dry_run -- ')
    lines[place] = line
  return '\n'.join(lines)


@pytest.mark.parametrize('name', ELSEWHERE)
def test_what_is_run_elsewhere_is_in_the_readme_and_run(name):
  assert sum(name in block for block in BLOCKS) == 1
  command = name.split('/')[-1].removesuffix('.py').split('.')[-1]
  assert command in (ROOT / ELSEWHERE[name]).read_text('utf-8')


# In the README's order, since one block may begin with what another has left.
@pytest.mark.parametrize('number', [number for number, block in enumerate(BLOCKS)
                                    if not any(name in block for name in ELSEWHERE)])
def test_commands_run_as_they_stand(sandbox, number):
  block = BLOCKS[number]
  done = subprocess.run(
      ['bash', '-euo', 'pipefail', '-c', shortened(block)], cwd=sandbox, capture_output=True,
      text=True, timeout=500, check=False, env={
          **os.environ, 'PYTHONPATH': str(ROOT),
          'PATH': f'{pathlib.Path(sys.executable).parent}:{os.environ["PATH"]}',
          'JAX_PLATFORMS': 'cpu', 'JAX_NUM_CPU_DEVICES': '8' if 'fsdp=8' in block else '1'})
  assert done.returncode == 0 and 'Traceback' not in done.stderr, f'{block}\n{done.stderr}'
