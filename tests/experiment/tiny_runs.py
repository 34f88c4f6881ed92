"""Runs of the tiny model, and their files."""

import dataclasses
import json

import jax
import numpy as np
import orbax.checkpoint as ocp

from tests.tiny_training import NumberedBatches, Settings, train_tiny
from transformer.experiment.meter import WALL_CLOCK
from transformer.runs.checkpoints import Checkpoints

ADAM = Settings().optimizer


def run(
  model,
  workdir,
  *,
  fatal=None,
  scores=None,
  optimizer=ADAM,
  batches=None,
  params=None,
  validation=None,
  objective=None,
  signals=None,
  **changes,
):
  """Trains as `train_tiny`, with changes of `TrainConfig`; dies instead of reading batch `fatal`.

  Each evaluation takes its BLEU from `scores`, or else computes it from the parameters.
  """
  settings = Settings(
    optimizer=optimizer, train=dataclasses.replace(Settings().train, **changes)
  )
  remaining = iter(scores or ())
  return train_tiny(
    settings,
    model,
    workdir,
    batches or NumberedBatches(fatal),
    validation=validation,
    bleu=(lambda params: next(remaining)) if scores else size_of,
    objective=objective,
    params=params,
    signals=signals,
  )


def size_of(params) -> float:
  """Returns a number that depends on every parameter."""
  return float(
    sum(np.abs(leaf).sum() for leaf in jax.tree.leaves(jax.device_get(params)))
  )


def rows_of(workdir):
  """Returns the lines of metrics.jsonl without metrics from a clock."""
  lines = (workdir / 'metrics.jsonl').read_text('utf-8').splitlines()
  return [
    {name: value for name, value in json.loads(line).items() if name not in WALL_CLOCK}
    for line in lines
  ]


def steps_in(folder):
  """Returns the steps of the checkpoints in a folder."""
  return Checkpoints(folder).steps


def final_state(workdir):
  """Returns everything that the last checkpoint holds."""
  checkpoints = Checkpoints(workdir / 'checkpoints')
  step = checkpoints.steps[-1]
  reader = ocp.StandardCheckpointer()
  parts = (workdir / 'checkpoints' / str(step)).glob('*/_METADATA')
  state = {part.parent.name: reader.restore(part.parent.absolute()) for part in parts}
  state['history'] = checkpoints.history(step)
  state['history'].pop('log')  # It holds lines of metrics.
  return state
