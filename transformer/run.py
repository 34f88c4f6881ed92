"""A run that lies on disk, ready to be used."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from transformer import files
from transformer.config import Config
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.inference.translate import Translation
from transformer.known_faults import check_backend
from transformer.model.transformer import Transformer
from transformer.training import run_directory
from transformer.training.checkpoints import AVERAGE, PARAMS, Checkpoints
from transformer.training.mesh import replicated, sentence_mesh
from transformer.training.step import TrainState, init_params


class Run(NamedTuple):
  """A trained model and what it takes to use it.

  Attributes:
    workdir: its directory.
    config: the settings that it was trained with.
    vocabulary: its vocabulary.
    model: its shape.
    params: its parameters; their moving average, if it was trained with one.
    steps: the checkpoints that the parameters come from, ascending; several if
      they are an average.
    mesh: the devices that hold the parameters, each all of them.
  """

  workdir: Path
  config: Config
  vocabulary: Vocabulary
  model: Transformer
  params: Any
  steps: list[int]
  mesh: jax.sharding.Mesh


def load_run(workdir: str | os.PathLike, checkpoint: str = 'best', average: int = 1,
             batch_size: int | None = None) -> Run:
  """Loads a run from its directory and nothing else.

  Args:
    workdir: the run's directory.
    checkpoint: `best`, that of the best evaluation; `latest`; or a step.
    average: how many checkpoints to average the parameters of: the chosen one
      and those kept before it.
    batch_size: sentences to translate together, in the place of `decode.batch_size`.

  Returns:
    The run.

  Raises:
    UserError: the directory holds no run, or not the checkpoints asked for, their
      parameters are not finite, or the installed JAX computes wrong numbers.
  """
  check_backend()
  workdir = Path(workdir).expanduser()
  settings = run_directory.read_config(workdir)
  if settings is None:
    raise UserError(f'{workdir} holds no run: there is no {run_directory.CONFIG} in it')
  config = Config.from_dict(settings)
  if batch_size is not None:
    config = dataclasses.replace(
        config, decode=dataclasses.replace(config.decode, batch_size=batch_size))
  if not (workdir / run_directory.CHECKPOINTS).is_dir():
    raise UserError(f'{workdir / run_directory.CHECKPOINTS} does not exist, so there is no '
                    f'checkpoint; train the run first')
  vocabulary = Vocabulary.load(workdir / run_directory.VOCABULARY,
                               run_directory.read_fingerprints(workdir)['vocabulary'])
  shape = config.model
  if shape.attention == 'cudnn' and jax.default_backend() != 'gpu':
    logging.info('there is no GPU: attention takes the reference path')
    shape = dataclasses.replace(shape, attention='reference')
  model = Transformer(shape, vocabulary.size)
  checkpoints = Checkpoints(workdir / run_directory.CHECKPOINTS, read_only=True)
  try:
    chosen = checkpoints.resolve(checkpoint)
    steps = [step for step in checkpoints.steps() if step <= chosen][-average:]
    if len(steps) < average:
      raise UserError(f'there are {len(steps)} checkpoints up to step {chosen}, fewer than the '
                      f'{average} to average; lower --average, or train with a larger train.keep')
    mesh = sentence_mesh(config.decode.batch_size)
    like = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=replicated(mesh)),
        jax.eval_shape(lambda: init_params(model, config.seed)))
    params = checkpoints.average_params(
        steps, like, AVERAGE if config.train.ema_decay else PARAMS)
  finally:
    checkpoints.close()
  run = Run(workdir, config, vocabulary, model, params, steps, mesh)
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    if not np.isfinite(leaf).all():
      name = jax.tree_util.keystr(path, simple=True, separator='.')
      raise _diverged([run], f'the parameter {name} is not finite')
  return run


def translate_with(members: Sequence[Run], translate, lines: Sequence[str],
                   first: int = 0) -> list[Translation]:
  """Translates lines with a run, or an ensemble of several.

  Args:
    members: the runs.
    translate: the `Translator` of their models.
    lines: text.
    first: how many lines came before.

  Raises:
    UserError: as `check_finite`.
  """
  params = [member.params for member in members]
  answers = translate(params if len(params) > 1 else params[0], lines, first)
  check_finite(members, (answer.score for answer in answers), first)
  return answers


def check_finite(runs: Sequence[Run], scores: Iterable[float], first: int = 0):
  """Refuses log-probabilities that only a model which has diverged gives.

  Args:
    runs: the run, or the ensemble, that gave them.
    scores: one for each line.
    first: how many lines came before.

  Raises:
    UserError: one is not finite; names its line and the runs.
  """
  for number, score in enumerate(scores, first + 1):
    if not math.isfinite(score):
      raise _diverged(runs, f'the log-probabilities for line {number} are not finite')


def _diverged(runs: Sequence[Run], fact: str) -> UserError:
  named = ' or '.join(f'{run.workdir}, step {", ".join(map(str, run.steps))},' for run in runs)
  return UserError(f'{named} has diverged: {fact}; choose an earlier --checkpoint, or train again '
                   f'with a lower learning rate')


def save_run(workdir: str | os.PathLike, config: Config, vocabulary: Vocabulary, params: Any,
             steps: list[int]):
  """Makes a run of weights alone: `load_run` reads it, and training does not go on with it.

  Args:
    workdir: an empty directory.
    config: the settings that the weights were trained with.
    vocabulary: theirs.
    params: nested dicts of arrays.
    steps: the checkpoints that they come from; the last is the step of the one here.

  Raises:
    UserError: the parameters are not those of such a model, or cannot be written.
  """
  wanted = jax.eval_shape(lambda: init_params(Transformer(config.model, vocabulary.size), 0))
  wanted, found = ({jax.tree_util.keystr(path, simple=True, separator='.'): (leaf.shape, leaf.dtype)
                    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
                   for tree in (wanted, params))
  for name in sorted(wanted.keys() | found.keys()):
    if wanted.get(name) != found.get(name):
      shapes = [f'{list(each[0])} of {each[1]}' if each else 'none'
                for each in (wanted.get(name), found.get(name))]
      raise UserError(f'the parameter {name} should be {shapes[0]}, as the config says; it is '
                      f'{shapes[1]}')
  workdir = Path(workdir)
  params = jax.tree.map(jnp.asarray, params)
  state = TrainState(jnp.int32(steps[-1]), params, optimizer={},
                     average=params if config.train.ema_decay else None)
  with contextlib.closing(Checkpoints(workdir / run_directory.CHECKPOINTS)) as checkpoints:
    checkpoints.save(state, {'evaluations': []})
  vocabulary.save(workdir / run_directory.VOCABULARY)
  files.write_sealed(workdir / run_directory.CONFIG, config.to_dict())
  files.write_sealed(workdir / run_directory.RUN, run_directory.describe_weights(
      vocabulary.fingerprint, sum(leaf.size for leaf in jax.tree.leaves(params)),
      config.train.reproducible, steps))


def checkpoints_of(workdir: str | os.PathLike) -> list[str]:
  """The checkpoints of a run, ascending, as `load_run` takes them.

  Raises:
    UserError: there are none.
  """
  folder = Path(workdir).expanduser() / run_directory.CHECKPOINTS
  if not folder.is_dir():
    raise UserError(f'{folder} does not exist, so there is no checkpoint; train the run first')
  checkpoints = Checkpoints(folder, read_only=True)
  try:
    checkpoints.resolve('latest')
    return [str(step) for step in checkpoints.steps()]
  finally:
    checkpoints.close()


def load_ensemble(run: Run, others: Sequence[str | os.PathLike]) -> list[Run]:
  """A run, and the best checkpoints of others that translate with the same pieces.

  Args:
    run: what sets how text is read and translated.
    others: directories of runs.

  Returns:
    All of them, `run` first.

  Raises:
    UserError: a directory holds no run, or one with another vocabulary.
  """
  members = [run]
  for workdir in others:
    member = load_run(workdir, batch_size=run.config.decode.batch_size)
    if member.vocabulary.model_bytes != run.vocabulary.model_bytes:
      raise UserError(f'the runs of an ensemble must have one vocabulary, and that of {workdir} is '
                      f'another; train it on the same text with the same config.data, or leave it '
                      f'out')
    members.append(member)
  return members
