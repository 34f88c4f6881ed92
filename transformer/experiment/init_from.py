"""What a run takes from the run that it starts from, `train.init_from`."""

import dataclasses
import hashlib
import os
from typing import Any

import jax

from transformer.data.vocabulary.vocabularies import RunVocabulary, fingerprints
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.runs.loading import Run, load_run

# Settings of a model that do not change what its parameters mean.
_FREE_SETTINGS = (
  'dropout',
  'attention_dropout',
  'activation_dropout',
  'attention',
  'dtype',
  'remat',
)


def load_to_host(workdir: str | os.PathLike) -> Run:
  """Loads the best checkpoint of a run; no device keeps its parameters."""
  run = load_run(workdir)
  return dataclasses.replace(run, params=jax.device_get(run.params))


def check_same_model(origin: ModelConfig, model: ModelConfig):
  """Refuses a model in which the parameters of `train.init_from` would mean something else."""
  there = _meaning(origin)
  here = _meaning(model)
  different = [
    f'model.{name} is {there[name]} there, and {here[name]} here'
    for name in there
    if there[name] != here[name]
  ]
  if different:
    raise UserError(
      f'a run starts from train.init_from with the same model, but for '
      f'{", ".join(_FREE_SETTINGS)}; {"; ".join(different)}'
    )


def _meaning(config: ModelConfig) -> dict[str, Any]:
  """Returns the settings that decide what parameters mean, with their defaults filled in."""
  settings = dataclasses.asdict(config)
  settings['key_dim'] = config.head_key_dim
  settings['value_dim'] = config.head_value_dim
  settings['decoder_layers'] = config.decoder_depth
  if config.positions != 'learned':
    settings['max_positions'] = None
  for name in _FREE_SETTINGS:
    del settings[name]
  return settings


def check_same_vocabulary(origin: RunVocabulary, vocabulary: RunVocabulary):
  """Raises `UserError` if the embeddings of `train.init_from` belong to other pieces."""
  if fingerprints(origin) != fingerprints(vocabulary):
    raise UserError(
      'a run keeps the vocabulary of train.init_from; leave out data.vocabulary and new '
      'data.symbols, or give its weights another vocabulary first, as docs/vocabulary.md shows'
    )


def describe_origin(origin: Run) -> dict[str, Any]:
  """Returns what `run.json` says of the run that another starts from: steps and a digest."""
  digest = hashlib.sha256()
  for leaf in jax.tree.leaves(origin.params):
    digest.update(leaf.tobytes())
  return {'steps': origin.steps, 'sha256': digest.hexdigest()}
