"""A tiny model and its batches, for all tests of training."""

import dataclasses
from typing import NamedTuple

import jax
import numpy as np
import pytest

from transformer.data.batch import EOS_ID, Batch
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.training.compilation import compile_programs, make_setup
from transformer.training.config import MeshConfig, OptimizerConfig, TrainConfig
from transformer.training.mesh import make_mesh

VOCABULARY = 23
ROWS, SOURCE_LENGTH, TARGET_LENGTH = 4, 13, 11


class Settings(NamedTuple):
  """The groups of the config that training reads."""

  optimizer: OptimizerConfig = OptimizerConfig(schedule='constant', peak_learning_rate=0.01,
                                               warmup_steps=3)
  train: TrainConfig = TrainConfig(steps=12, tokens_per_batch=ROWS * TARGET_LENGTH, log_every=4,
                                   eval_every=5, checkpoint_every=5, keep=2)
  mesh: MeshConfig = MeshConfig()
  seed: int = 7


def make_batch(number: int, rows: int = ROWS) -> Batch:
  """Returns a batch with two pairs in every row, a function of its number."""
  rng = np.random.default_rng([5, number])

  def side(length, sizes):
    arrays = np.zeros((3, rows, length), np.int32)
    for row in range(rows):
      start = 0
      for segment, size in enumerate(sizes, 1):
        tokens, segments, positions = arrays[:, row, start:start + size]
        tokens[:] = [*rng.integers(4, VOCABULARY, size - 1), EOS_ID]
        segments[:] = segment
        positions[:] = np.arange(size)
        start += size
    return arrays

  return Batch(*side(SOURCE_LENGTH, (5, 7)), *side(TARGET_LENGTH, (3, 5)))


class NumberedBatches:
  """Batches by number; raises an error before batch `fatal`, in place of a kill."""

  def __init__(self, fatal: int | None = None):
    self._fatal = fatal

  def iterate(self, start, stop):
    for number in range(start, stop):
      if number == self._fatal:
        raise InterruptedError(f'killed before step {number}')
      yield make_batch(number)


def make_task(model: Transformer, batches=None, bleu=lambda params: 0.0, valid_batch=None,
              validate=None, **more):
  """Returns a task on these batches; `validate` returns `bleu(params)` and nothing else."""
  from transformer.experiment.task import Task  # A slow import.
  from transformer.experiment.validation import Validation, ValidationSet

  valid_batch = make_batch(100) if valid_batch is None else valid_batch
  validate = validate or (lambda params: Validation(bleu(params)))
  return Task(model, batches or NumberedBatches(),
              [ValidationSet('valid', [valid_batch], validate)], **more)


def train_tiny(settings, task, workdir, objective=None, **options):
  """Trains in `workdir`, on all devices."""
  from transformer.experiment.loop import train

  rows = len(task.valid_sets[0].batches[0].target_tokens) // settings.optimizer.accumulate
  setup = make_setup(settings, task.model, make_mesh(settings.mesh, rows), objective)
  return train(settings, task, setup, workdir, **options)


@pytest.fixture(scope='session')
def model(compiled_once) -> Transformer:
  """Returns a small model with dropout, so that randomness must resume too."""
  return Transformer(ModelConfig(num_layers=1, model_dim=10, ff_dim=14, num_heads=2, dropout=0.2,
                                 norm='pre'), VOCABULARY)


@pytest.fixture(scope='session')
def compiled_once():
  """Compiles a program once for all tests that use it, since tracing it takes longest."""
  from transformer.experiment import loop  # A slow import.

  programs = {}

  def compile_once(settings, model, setup, shape):
    # Only these settings have no influence on the programs.
    train = dataclasses.replace(settings.train, log_every=1, eval_every=1, checkpoint_every=1,
                                keep=1, patience=0, best_by='', valid_metric='')
    leaves, structure = jax.tree.flatten(setup.state)
    key = (settings.optimizer, train, settings.seed, model, setup.mesh, shape, structure,
           tuple(leaves), setup.objective)
    if key not in programs:
      programs[key] = compile_programs(settings, model, setup, shape)
    return programs[key]

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(loop, 'compile_programs', compile_once)
    yield
