"""Runs that an earlier version saved load as they were, and their record needs no TFDS."""

import importlib.metadata

import chex
import jax
import pytest

from transformer import files
from transformer.config import Config
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.runs import run_directory
from transformer.runs.loading import load_run, save_run
from transformer.training.step import init_params


def test_a_run_from_before_attention_bias_has_all_biases(tmp_path):
  vocabulary = Vocabulary.train(['a dog and a man', 'ein hund und ein mann'] * 9, 280)
  config = Config.from_dict({'model': {'num_layers': 1, 'model_dim': 8, 'ff_dim': 12,
                                       'num_heads': 2, 'attention_bias': 'all'}})
  params = jax.device_get(init_params(Transformer(config.model, vocabulary.size), 0))
  save_run(tmp_path / 'run', config, vocabulary, params, [3])
  path = tmp_path / 'run' / run_directory.CONFIG
  settings = run_directory.read_config(tmp_path / 'run')
  settings['model'].pop('attention_bias')
  files.write_sealed(path, settings)
  assert 'attention_bias' not in path.read_text()
  run = load_run(tmp_path / 'run')
  assert run.config == config
  chex.assert_trees_all_equal(jax.device_get(run.params), params)

  settings['model']['attention_bias'] = 'none'
  files.write_sealed(path, settings)
  with pytest.raises(UserError):
    load_run(tmp_path / 'run')


def test_a_run_records_the_packages_that_are_installed(monkeypatch):
  def version(name):
    if name == 'tensorflow-datasets':
      raise importlib.metadata.PackageNotFoundError(name)
    return '1.0'

  monkeypatch.setattr(importlib.metadata, 'version', version)
  packages = run_directory.describe_weights('', 1, False, [3])['packages']
  assert packages['jax'] == packages['sentencepiece'] == '1.0'
  assert 'tensorflow-datasets' not in packages
