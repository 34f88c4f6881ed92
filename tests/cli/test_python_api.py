"""A run in Python returns the results that eval.py writes."""

import numpy as np
import pytest

import transformer


@pytest.fixture(scope='module')
def say(evaluate, trained, folder):
  """Returns a function of flags that returns the lines of eval.py for the test text."""

  def say(*flags):
    status, out, err = evaluate(
      f'--workdir={trained}', f'--source={folder}/test.en', *flags
    )
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


def test_samples_and_scores_match_eval(say, run, sources, targets, folder):
  lists = run.translate(sources, sample=True, beam_size=2, nbest=2, seed=3)
  assert say('--sample', '--beam_size=2', '--nbest=2', '--seed=3') == [
    f'{number} ||| {text} ||| {score:.6f}'
    for number, nbest in enumerate(lists)
    for text, score in nbest
  ]
  pieces = run.score(sources, targets, tokens=True)
  np.testing.assert_allclose(
    run.score(sources, targets),
    [sum(score for _, score in line) for line in pieces],
    rtol=1e-6,
  )
