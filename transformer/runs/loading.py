"""Loads a trained run from disk, and saves weights as a run."""

import contextlib
import dataclasses
import functools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from transformer import files
from transformer.config import Config
from transformer.data.vocabulary import vocabularies
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.errors import UserError, short_repr
from transformer.model.building import Model, build_model, python_modules
from transformer.model.transformer import init_params
from transformer.runs import record, run_directory
from transformer.runs.checkpoints import (
  EMA,
  PARAMS,
  Checkpoints,
  leaves_by_name,
)
from transformer.system.jax_backend import check_backend
from transformer.system.traced_programs import cache_traced
from transformer.training.mesh import replicated, sentence_mesh


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """A trained model, with its config and vocabulary.

  Attributes:
    vocabulary: the shared vocabulary, or one vocabulary per language.
    params: the parameters, or their moving average if the run maintains one.
    checkpoint_steps: the checkpoints that the parameters are averaged over, ascending.
  """

  workdir: Path
  config: Config
  vocabulary: RunVocabulary
  model: Model
  params: Any
  checkpoint_steps: list[int]

  def __post_init__(self):
    check_params(self.model, self.params)

  def __getstate__(self) -> dict:
    """Returns the fields to pickle, without compiled functions."""
    return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def load_run(
  workdir: str | os.PathLike,
  checkpoint: str = 'best',
  average: int = 1,
  batch_size: int | None = None,
) -> Run:
  """Loads a run from its directory.

  Args:
    checkpoint: `best`, for the best evaluation; `latest`; or a step.
    average: number of checkpoints to average: the chosen one and the latest before it.
    batch_size: sentences per batch in translation, instead of `decode.batch_size`.
  """
  check_backend()
  workdir = files.as_path(workdir)
  config = run_directory.read_config(workdir)
  if batch_size is not None:
    config = dataclasses.replace(
      config, decode=dataclasses.replace(config.decode, batch_size=batch_size)
    )
  checkpoints = Checkpoints(workdir / run_directory.CHECKPOINTS)
  chosen = checkpoints.resolve(checkpoint)
  vocabulary = vocabularies.load(workdir, run_directory.read_record(workdir)['data'])
  model = build_model(config.model, vocabulary)
  if model.config.attention != config.model.attention:
    logging.info(
      'attention uses the reference implementation, since cuDNN attention is unavailable here'
    )
  steps = [
    step
    for step in checkpoints.steps
    if step == chosen or (step < chosen and not checkpoints.is_eval_pending(step))
  ][-average:]
  if len(steps) < average:
    raise UserError(
      f'{workdir} has {len(steps)} checkpoints up to step {chosen}, too few to average '
      f'{average}; average fewer, or train with a larger train.keep'
    )
  item = EMA if config.train.ema_decay else PARAMS
  devices = replicated(sentence_mesh(config.decode.batch_size))
  params = checkpoints.average_params(steps, _shapes_of(model), devices, item)
  run = Run(workdir, config, vocabulary, model, params, steps)
  for name, leaf in leaves_by_name(params).items():
    if not np.isfinite(leaf).all():
      raise divergence_error([run], f'the parameter {name} is not finite')
  return run


def divergence_error(runs: Sequence[Run], fact: str) -> UserError:
  """Returns a `UserError` that names the diverged runs and suggests a fix."""
  names = ' or '.join(
    f'{run.workdir}, step {", ".join(map(str, run.checkpoint_steps))},' for run in runs
  )
  return UserError(
    f'{names} has diverged: {fact}; choose an earlier checkpoint, or train again '
    f'with a lower learning rate'
  )


def check_finite_scores(
  runs: Sequence[Run], scores: Iterable[float], first_line: int = 1
):
  """Raises `UserError` if a log-probability is not finite, since the runs have diverged.

  `first_line` is the line number of the first score.
  """
  for line_number, score in enumerate(scores, first_line):
    if not math.isfinite(score):
      raise divergence_error(
        runs, f'the log-probabilities for line {line_number} are not finite'
      )


def save_run(
  workdir: str | os.PathLike,
  config: Config,
  vocabulary: RunVocabulary,
  params,
  checkpoint_steps: list[int],
):
  """Saves weights as a run that `load_run` can read, but that training cannot resume.

  Args:
    workdir: an empty directory.
    checkpoint_steps: the checkpoints that the weights come from; the new checkpoint gets the last.
  """
  # Loading a run needs neither Orbax nor Optax, whose imports take a sixth of the start-up time.
  from transformer.runs.checkpoint_writer import CheckpointWriter
  from transformer.training.step import TrainState

  check_params(build_model(config.model, vocabulary), params)
  workdir = Path(workdir)
  params = jax.tree.map(jnp.asarray, params)
  state = TrainState(
    jnp.int32(checkpoint_steps[-1]),
    params,
    optimizer={},
    average=params if config.train.ema_decay else None,
  )
  with contextlib.closing(
    CheckpointWriter(workdir / run_directory.CHECKPOINTS)
  ) as checkpoints:
    checkpoints.save(state, {'evaluations': []})
  vocabularies.save(vocabulary, workdir)
  files.write_sealed(workdir / run_directory.CONFIG, config.to_dict())
  record.write_record(
    workdir,
    config.train.reproducible,
    data=vocabularies.fingerprints(vocabulary),
    parameters=sum(leaf.size for leaf in jax.tree.leaves(params)),
    **{run_directory.WEIGHTS_ONLY: checkpoint_steps},
  )


def check_params(model: Model, params):
  """Raises `UserError` if the names or shapes of parameters differ from the model's."""
  if not isinstance(params, Mapping):
    raise UserError(
      f'parameters must be nested dicts, as run.params; got {short_repr(params)}'
    )
  expected = leaves_by_name(_shapes_of(model))
  actual = leaves_by_name(params)
  for name in sorted(expected.keys() | actual.keys()):
    shapes = [
      np.shape(arrays[name]) if name in arrays else None
      for arrays in (expected, actual)
    ]
    if shapes[0] != shapes[1]:
      raise UserError(
        f'the parameter {name} should be {shapes[0]}, as the config says; it is {shapes[1]}'
      )


@functools.cache
def _shapes_of(model: Model) -> Any:
  """Returns the shapes of a model's parameters; their traced program is cached."""
  return jax.eval_shape(
    cache_traced(
      lambda: init_params(model, 0),
      f'parameters, {model!r}',
      python_modules(model),
      (),
    )
  )


def saved_steps(workdir: str | os.PathLike) -> list[str]:
  """Returns the steps of a run's checkpoints, ascending, as text for `load_run`."""
  checkpoints = Checkpoints(files.as_path(workdir) / run_directory.CHECKPOINTS)
  checkpoints.resolve('latest')
  return [str(step) for step in checkpoints.steps]
