"""The command plots the curves of one run or of several; a mistake is one line."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.running_commands import ROOT
from tests.runs.test_curves import drawn


@pytest.fixture(scope='module')
def plot(start_command):
  yield from start_command('transformer.tools.plot', takes_arguments=True)


def test_the_plot_of_a_run_lies_in_its_directory(plot, trained, tmp_path):
  shutil.copytree(trained, tmp_path / 'run')
  (tmp_path / 'run' / 'curves.svg').unlink()
  status, out, err = plot(tmp_path / 'run')
  assert status == 0 and out.startswith(f'{tmp_path}/run/curves.svg has the curves of '), err
  assert drawn(tmp_path / 'run' / 'curves.svg').keys() == drawn(trained / 'curves.svg').keys()


def test_several_runs_share_a_picture(plot, trained, tmp_path):
  shutil.copytree(trained, tmp_path / 'other')
  status, out, err = plot(trained, tmp_path / 'other', f'--output={tmp_path}/new/both.svg')
  assert status == 0 and out.startswith(f'{tmp_path}/new/both.svg has the curves of'), err
  assert {number for number, _ in drawn(tmp_path / 'new' / 'both.svg')} == {0, 1}


@pytest.mark.parametrize(('arguments', 'facts'), [
    ([], ['which runs?', 'python -m transformer.tools.plot RUN']),
    (['{run}', '{run}/'], ['a run is given twice']),
    (['{run}', '{folder}'], ['--output=FILE is needed where runs are several; got 2']),
    (['{run}', '--output=x.gif'], ["--output must end in one of .svg, .png, .pdf; got 'x.gif'"]),
    (['{run}', '--output='], ['--output must end in one of']),
    (['{run}', '--output={folder}/tiny.py/x.svg'], ['--output needs a directory']),
    (['{run}', '--output={folder}/folder.svg'], ['--output must name a file', 'is a directory']),
    (['{folder}'], ['{folder}/metrics.jsonl cannot be read', 'has one as soon as it trains']),
    (['{damaged}', '--output={damaged}/linked.svg'],
     ['--output={damaged}/linked.svg would replace what is read', '{damaged}/metrics.jsonl']),
    (['{damaged}'], ['line 1 of {damaged}/metrics.jsonl should be a JSON object', 'is damaged']),
])
def test_a_mistake_is_one_line(plot, folder, trained, tmp_path, arguments, facts):
  (folder / 'folder.svg').mkdir(exist_ok=True)
  (tmp_path / 'metrics.jsonl').write_text('not JSON\n')
  os.link(tmp_path / 'metrics.jsonl', tmp_path / 'linked.svg')
  names = {'folder': folder, 'run': trained, 'damaged': tmp_path}
  message = plot.refuses(*(each.format(**names) for each in arguments))
  for fact in facts:
    assert fact.format(**names) in message, message


@pytest.mark.long
def test_it_runs_as_a_module_and_needs_no_device(trained, tmp_path):
  code = ('import sys; '
          'import transformer.tools.plot; print("jax" in sys.modules)')
  done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, text=True, capture_output=True)
  assert done.stdout == 'False\n', done.stderr
  done = subprocess.run([sys.executable, '-m', 'transformer.tools.plot', trained,
                         f'--output={tmp_path}/curves.png'], cwd=ROOT, text=True,
                        capture_output=True)
  assert (done.returncode, done.stderr) == (0, '')
  assert (tmp_path / 'curves.png').read_bytes().startswith(b'\x89PNG')
