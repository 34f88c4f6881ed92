"""A run in Python gives what eval.py writes."""

import json

import numpy as np
import pytest

import transformer


@pytest.fixture(scope='module')
def say(evaluate, trained, folder):
  """Returns a function of flags that returns the lines of eval.py for the test text."""

  def say(*flags):
    status, out, err = evaluate(f'--workdir={trained}', f'--source={folder}/test.en', *flags)
    assert status == 0, err
    return out.splitlines()

  return say


@pytest.fixture(scope='module')
def run(trained):
  return transformer.load(trained)


@pytest.fixture(scope='module')
def sources(folder):
  return (folder / 'test.en').read_text('utf-8').splitlines()


@pytest.fixture(scope='module')
def targets(folder):
  return (folder / 'test.de').read_text('utf-8').splitlines()


@pytest.mark.long
def test_translations_with_given_beginnings_are_those_of_eval(say, run, sources, targets, folder):
  assert run.translate(sources, beam_size=2, prefix=targets) == say(
    '--beam_size=2', f'--prefix={folder}/test.de'
  )


def test_draws_and_scores_are_those_of_eval(say, run, sources, targets, folder):
  lists = run.translate(sources, sample=True, beam_size=2, nbest=2, seed=3)
  assert say('--sample', '--beam_size=2', '--nbest=2', '--seed=3') == [
    f'{number} ||| {text} ||| {score:.6f}'
    for number, nbest in enumerate(lists)
    for text, score in nbest
  ]
  for line, log_prob, pieces in zip(
    say('--score', '--tokens', f'--reference={folder}/test.de'),
    run.score(sources, targets),
    run.score(sources, targets, tokens=True),
    strict=True,
  ):
    written = json.loads(line)
    assert written['pieces'] == list(map(list, pieces))
    np.testing.assert_allclose(log_prob, written['log_prob'], rtol=1e-6)
