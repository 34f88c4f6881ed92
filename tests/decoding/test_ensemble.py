"""The runs of an ensemble fit each other."""

import types
from pathlib import Path

import jax
import pytest

from transformer.config import Config
from transformer.data.vocabulary.vocabularies import SeparateVocabularies
from transformer.decoding import ensemble
from transformer.errors import UserError
from transformer.model.transformer import Transformer, init_params
from transformer.runs.loading import Run


def run_with(vocabulary='a vocabulary', max_extra_length=10, **model):
  config = Config.from_dict(
    {
      'data': {'max_length': 64},
      'decode': {'max_extra_length': max_extra_length},
      'train': {'tokens_per_batch': 64},
      'model': {'num_layers': 1, 'model_dim': 6, 'ff_dim': 10, 'num_heads': 2, **model},
    }
  )
  model = Transformer(config.model, 300)
  params = jax.eval_shape(lambda: init_params(model, 0))
  side = types.SimpleNamespace(fingerprint=vocabulary)
  both = SeparateVocabularies(side, side)
  return Run(Path('nowhere'), config, both, model, params, [1])


def load(monkeypatch, others, *chosen):
  """Returns the loaded models of some runs, by name, and the arguments of each loading."""
  runs, loaded = {'first': run_with(), **others}, []
  monkeypatch.setattr(
    ensemble,
    'load_run',
    lambda name, *given: loaded.append((name, *given)) or runs[name],
  )
  _, *members = ensemble.load_ensemble(
    'first', *(chosen or ('best', 1)), list(others), None
  )
  return members, loaded[1:]


@pytest.mark.parametrize('chosen', [(), ('latest', 10)])
def test_the_others_have_the_vocabulary_the_positions_and_the_checkpoint(
  monkeypatch, chosen
):
  others = {'one': run_with(positions='learned', max_positions=74), 'two': run_with()}
  members, loaded = load(monkeypatch, others, *chosen)
  assert members == [*others.values()]
  size = run_with().config.decode.batch_size
  assert loaded == [(name, *(chosen or ('best', 1)), size) for name in others]
  for other, match in (
    (
      run_with(max_extra_length=9, positions='learned', max_positions=73),
      r'must have positions for 74 tokens, .*; other learned 73;',
    ),
    (run_with('another'), 'must share a vocabulary, and other has a different one'),
  ):
    with pytest.raises(UserError, match=match):
      load(monkeypatch, {'other': other})
