"""The runs of an ensemble fit each other."""

import types

import pytest

from transformer.config import Config
from transformer.decoding import ensemble
from transformer.errors import UserError
from transformer.model.config import ModelConfig


def run_with(vocabulary='a vocabulary', **model):
  return types.SimpleNamespace(
      config=Config.from_dict({'data': {'max_length': 64}, 'decode': {'max_extra_length': 10},
                               'train': {'tokens_per_batch': 64}}),
      vocabulary=vocabulary, model=types.SimpleNamespace(config=ModelConfig(**model)))


@pytest.fixture
def load(monkeypatch):
  """(first, other) -> the runs of the ensemble of both."""
  def load(first, other):
    monkeypatch.setattr(ensemble, 'load_run', lambda *_, **__: other)
    monkeypatch.setattr(ensemble, 'model_files', lambda vocabulary: vocabulary)
    return ensemble.load_ensemble(first, ['other'])

  return load


def test_a_member_without_positions_for_the_longest_translation_is_refused(load):
  first, long, short = run_with(), *(run_with(positions='learned', max_positions=most)
                                     for most in (74, 73))
  assert load(first, long) == [first, long]
  with pytest.raises(UserError, match=r'must have positions for 74 tokens, .*; other learned 73;'):
    load(first, short)


def test_a_member_with_another_vocabulary_is_refused(load):
  with pytest.raises(UserError, match='must have the same vocabulary, and other has another one'):
    load(run_with(), run_with('another'))


@pytest.mark.parametrize('chosen', [(), ('latest', 10)])
def test_the_others_have_the_checkpoints_that_are_asked_for(monkeypatch, chosen):
  asked, first = [], run_with()
  monkeypatch.setattr(ensemble, 'model_files', lambda vocabulary: vocabulary)
  monkeypatch.setattr(ensemble, 'load_run', lambda *given: asked.append(given) or first)
  ensemble.load_ensemble(first, ['one', 'two'], *chosen)
  size = first.config.decode.batch_size
  assert asked == [(name, *(chosen or ('best', 1)), size) for name in ('one', 'two')]
