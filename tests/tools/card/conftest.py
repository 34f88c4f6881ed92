"""A run that is scored, and the command that writes its card."""

import json
import shutil

import pytest


@pytest.fixture(scope='session')
def card(start_command):
  yield from start_command('transformer.tools.card.__main__', takes_arguments=True)


@pytest.fixture(scope='session')
def scored_once(trained, evaluate, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('card') / 'scored'
  shutil.copytree(trained, workdir)
  status, _, err = evaluate(f'--workdir={workdir}', '--beam_size=2')
  assert status == 0, err
  # A model of two steps writes bytes that are no text, and more of them than it may read.
  (path,) = (workdir / 'eval').glob('test.*.sentences.jsonl')
  lines = []
  for line in path.read_text('utf-8').splitlines():
    sentence = json.loads(line)
    lines.append(
      json.dumps({**sentence, 'translation': f'{sentence["references"][0]} !'})
    )
  path.write_text('\n'.join([*lines, '']), 'utf-8')
  return workdir


@pytest.fixture
def scored(scored_once, tmp_path):
  """Returns a copy of a run of two steps with the scores of its test split."""
  return shutil.copytree(scored_once, tmp_path / 'scored')
