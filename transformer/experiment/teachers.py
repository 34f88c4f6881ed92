"""The runs that a run learns from word by word, `train.teachers`."""

from collections.abc import Sequence
from typing import Any

import jax

from transformer.config import Config
from transformer.data.vocabulary.vocabularies import RunVocabulary, fingerprints
from transformer.errors import UserError
from transformer.experiment.origin import describe_origin, load_to_host
from transformer.runs.loading import Run
from transformer.system import processes
from transformer.training.compilation import Teachers
from transformer.training.mesh import replicated


def load_teachers(config: Config) -> list[Run]:
  """Loads the best checkpoint of each run of `train.teachers`; its parameters stay on the host.

  Raises:
    UserError: a directory holds no run, or one with learned positions for shorter sentences.
  """
  # Devices get the parameters once, from `place_teachers`.
  runs = list(map(load_to_host, config.train.teachers))
  for run in runs:
    model = run.config.model
    if model.positions == 'learned' and model.max_positions < config.data.max_length:
      raise UserError(f'{run.workdir} of train.teachers must have positions for data.max_length='
                      f'{config.data.max_length} tokens; it has model.max_positions='
                      f'{model.max_positions}; lower data.max_length, or leave it out')
  return runs


def check_vocabulary(runs: Sequence[Run], vocabulary: RunVocabulary):
  """Refuses teachers with another vocabulary, whose distributions are over other tokens.

  Raises:
    UserError: names the first of them.
  """
  for run in runs:
    if fingerprints(run.vocabulary) != fingerprints(vocabulary):
      raise UserError(f'{run.workdir} of train.teachers must have the vocabulary of this run; it '
                      f'has another; set --config.data.vocabulary={run.workdir}/vocabulary.model, '
                      f'or train on the same text with the same config.data')


def describe_teachers(runs: Sequence[Run]) -> list[dict[str, Any]]:
  """Returns what `run.json` says of the teachers: the steps and the digest of their parameters."""
  return [describe_origin(run, run.vocabulary) for run in runs]


def place_teachers(runs: Sequence[Run], mesh: jax.sharding.Mesh) -> Teachers:
  """Returns the models of the runs, with the parameters on all devices of a mesh."""
  where = replicated(mesh)
  return Teachers(tuple(run.model for run in runs), tuple(
      jax.device_put(processes.place(run.params, where), where) for run in runs))
