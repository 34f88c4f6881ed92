"""Loads and checks the run whose weights a new run starts from, `train.init_from`."""

import dataclasses

import jax

from transformer.errors import UserError
from transformer.evaluation.results import checkpoint_digests
from transformer.model.config import ModelConfig
from transformer.runs.loading import Run, load_run

# Model settings that do not change the meaning of the parameters.
_FREE_SETTINGS = (
  'dropout',
  'attention_dropout',
  'activation_dropout',
  'attention',
  'dtype',
  'remat',
)


def load_to_host(workdir: str) -> Run:
  """Loads the best checkpoint of a run, with its parameters in host memory only."""
  run = load_run(workdir)
  return dataclasses.replace(run, params=jax.device_get(run.params))


def check_same_model(origin: ModelConfig, model: ModelConfig):
  """Raises `UserError` if the model of `train.init_from` is incompatible with the new run's."""
  old = dataclasses.asdict(origin)
  new = dataclasses.asdict(model)
  different = [
    f'model.{name} is {old[name]} there, and {new[name]} here'
    for name in old
    if name not in _FREE_SETTINGS and old[name] != new[name]
  ]
  if different:
    raise UserError(
      'the model must equal the model of train.init_from, except for '
      f'{", ".join(_FREE_SETTINGS)}; {"; ".join(different)}'
    )


def weights_provenance(origin: Run) -> dict:
  """Returns what `run.json` records about a run whose weights are used: steps and a digest."""
  (digest,) = checkpoint_digests(origin)
  return {'steps': origin.checkpoint_steps, 'sha256': digest}
