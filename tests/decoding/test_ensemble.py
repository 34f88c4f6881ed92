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


def load(monkeypatch, others, *chosen):
  """Returns what is loaded for some runs, by name, and the arguments of each loading."""
  loaded = []
  monkeypatch.setattr(ensemble, 'model_files', lambda vocabulary: vocabulary)
  monkeypatch.setattr(ensemble, 'load_run',
                      lambda name, *given: loaded.append((name, *given)) or others[name])
  return ensemble.load_ensemble(run_with(), list(others), *chosen)[1:], loaded


@pytest.mark.parametrize('chosen', [(), ('latest', 10)])
def test_the_others_have_the_vocabulary_the_positions_and_the_checkpoint(monkeypatch, chosen):
  others = {'one': run_with(positions='learned', max_positions=74), 'two': run_with()}
  members, loaded = load(monkeypatch, others, *chosen)
  assert members == [*others.values()]
  size = run_with().config.decode.batch_size
  assert loaded == [(name, *(chosen or ('best', 1)), size) for name in others]
  for other, match in (
      (run_with(positions='learned', max_positions=73),
       r'must have positions for 74 tokens, .*; other learned 73;'),
      (run_with('another'), 'must have the same vocabulary, and other has another one')):
    with pytest.raises(UserError, match=match):
      load(monkeypatch, {'other': other})
