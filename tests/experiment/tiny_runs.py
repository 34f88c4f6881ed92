"""Runs of the tiny model, and what they leave on disk."""

import dataclasses
import json

import jax
import numpy as np

from tests.tiny_training import NumberedBatches, Settings, make_task, train_tiny
from transformer.experiment.meter import WALL_CLOCK
from transformer.runs.checkpoints import Checkpoints

ADAM = Settings().optimizer


def run(model, workdir, *, fatal=None, scores=None, initial_params=None,
        optimizer=ADAM, **changes):
  """Trains; each evaluation takes its BLEU from `scores`, or else computes it from the parameters.

  Args:
    model: the model.
    workdir: the run's directory.
    fatal: the batch in place of which the run dies.
    scores: BLEU of each evaluation.
    initial_params: as in `Task`.
    optimizer: settings of the optimizer.
    **changes: settings of `TrainConfig`.
  """
  settings = Settings(optimizer)
  settings = settings._replace(train=dataclasses.replace(settings.train, **changes))
  remaining = iter(scores or ())

  def score(params):
    if scores:
      return next(remaining)
    return size_of(params)

  return train_tiny(settings, make_task(model, NumberedBatches(fatal), score,
                                        initial_params=initial_params), workdir)


def size_of(params) -> float:
  """Returns a number that depends on every parameter."""
  return float(sum(np.abs(leaf).sum() for leaf in jax.tree.leaves(jax.device_get(params))))


def rows_of(workdir):
  """Returns the lines of metrics.jsonl without metrics from a clock."""
  lines = (workdir / 'metrics.jsonl').read_text('utf-8').splitlines()
  return [{name: value for name, value in json.loads(line).items() if name not in WALL_CLOCK}
          for line in lines]


def steps_in(folder):
  """Returns the steps of the checkpoints in a folder."""
  checkpoints = Checkpoints(folder, read_only=True)
  steps = checkpoints.steps()
  checkpoints.close()
  return steps


def final_state(workdir):
  """Returns everything that the last checkpoint holds, without metrics from a clock."""
  checkpoints = Checkpoints(workdir / 'checkpoints', read_only=True)
  found = dict(checkpoints._manager.restore(checkpoints.steps()[-1]))
  checkpoints.close()
  found['history'].pop('log')  # It holds lines of metrics.
  return found
