"""A run of a released version opens, scores and resumes with this version."""

import json
import pathlib
import tarfile

import numpy as np
import pytest

import transformer
from transformer.testing.tolerance import rounding_tolerance

ARCHIVES = sorted(pathlib.Path(__file__).parent.glob('*.tar.gz'))
# A sentence's log-probability sums up to 20 tokens. Before it, numbers below 10 pass the sublayers
# of two layers and the output projection, whose sums have up to 300 terms.
ROUNDING = 20 * rounding_tolerance(terms=6 * 300, size=10.0)


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix('.tar.gz'))
def released(request, tmp_path):
  """Returns the unpacked folder of a released run, its text and its results."""
  with tarfile.open(request.param) as archive:
    archive.extractall(tmp_path, filter='data')
  (folder,) = tmp_path.iterdir()
  return folder


def expected_of(folder):
  return json.loads((folder / 'expected.json').read_text('utf-8'))


def test_there_is_a_run_of_this_major_version():
  assert [path for path in ARCHIVES if path.name.startswith('1.')]


def test_it_translates_and_scores(released):
  run = transformer.load(released / 'run')
  expected = expected_of(released)
  lines, translations = expected['lines'], expected['translations']
  assert run.translate(lines, beam_size=1) == translations
  np.testing.assert_allclose(
    run.score(lines, translations), expected['log_probs'], rtol=0, atol=ROUNDING
  )


def test_its_bleu_is_the_same(evaluate, released):
  status, _, err = evaluate(
    f'--workdir={released}/run',
    f'--source={released}/text/test.en',
    f'--reference={released}/text/test.fr',
    '--beam_size=1',
  )
  assert status == 0, err
  (path,) = (released / 'run' / 'eval').glob('*.json')
  result = json.loads(path.read_text('utf-8'))
  assert result['bleu'] == pytest.approx(expected_of(released)['bleu'], abs=1e-6)


@pytest.mark.long
def test_it_resumes(train, released):
  more = expected_of(released)['step'] + 2
  status, _, err = train(
    f'--workdir={released}/run',
    f'--config.data.dir={released}/text',
    f'--config.train.steps={more}',
    f'--config.train.eval_every={more}',
  )
  assert status == 0, err
  rows = (released / 'run' / 'metrics.jsonl').read_text('utf-8').splitlines()
  last = json.loads(rows[-1])
  assert last['step'] == more
