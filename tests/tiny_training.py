"""A tiny model and its batches, for all tests of training."""

import dataclasses
from typing import NamedTuple

import jax
import numpy as np
import pytest

from transformer.config import Config
from transformer.data.batch import EOS_ID, Batch
from transformer.data.config import DataConfig
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.runs.evaluations import best_evaluation
from transformer.training.config import OptimizerConfig, TrainConfig
from transformer.training.mesh import make_mesh
from transformer.training.training_setup import CompiledSteps, make_training_setup

VOCABULARY = 23
ROWS, SOURCE_LENGTH, TARGET_LENGTH = 4, 13, 11


_DATA = DataConfig(max_length=TARGET_LENGTH)
_OPTIMIZER = OptimizerConfig(
  schedule='constant', peak_learning_rate=0.01, warmup_steps=3
)
_TRAIN = TrainConfig(
  steps=12,
  tokens_per_batch=ROWS * TARGET_LENGTH,
  log_every=4,
  eval_every=5,
  checkpoint_every=5,
  keep=2,
)
_MODEL = ModelConfig(num_layers=1, model_dim=10, ff_dim=14, num_heads=2)


@dataclasses.dataclass(frozen=True)
class Settings(Config):
  """The settings of a tiny run."""

  data: DataConfig = _DATA
  optimizer: OptimizerConfig = _OPTIMIZER
  train: TrainConfig = _TRAIN
  model: ModelConfig = _MODEL
  seed: int = 7


def make_batch(number: int, rows: int = ROWS) -> Batch:
  """Returns a batch with two pairs in every row, a function of its number."""
  rng = np.random.default_rng([5, number])

  def side(length, sizes):
    arrays = np.zeros((3, rows, length), np.int32)
    for row in range(rows):
      start = 0
      for segment, size in enumerate(sizes, 1):
        tokens, segments, positions = arrays[:, row, start : start + size]
        tokens[:] = [*rng.integers(4, VOCABULARY, size - 1), EOS_ID]
        segments[:] = segment
        positions[:] = np.arange(size)
        start += size
    return arrays

  return Batch(*side(SOURCE_LENGTH, (5, 7)), *side(TARGET_LENGTH, (3, 5)))


class NumberedBatches:
  """Batches by number; raises an error before batch `fatal`, instead of a kill."""

  def __init__(self, fatal: int | None = None, rows: int = ROWS):
    self._fatal, self.shape = fatal, (rows, SOURCE_LENGTH, TARGET_LENGTH)

  def iterate(self, start, stop):
    for number in range(start, stop):
      if number == self._fatal:
        raise InterruptedError(f'killed before step {number}')
      yield make_batch(number, self.shape[0])


class Outcome(NamedTuple):
  """How training ended: its last step, the step of the previous checkpoint, and the evaluations."""

  step: int
  resumed_from: int | None
  evaluations: list
  did_train: bool

  @property
  def best(self):
    """The best evaluation."""
    return best_evaluation(self.evaluations)


class TinyValidation:
  """A validation as `train` takes it: it has the loss of a batch, and BLEU of parameters."""

  def __init__(self, bleu=lambda params: 0.0, rows=ROWS, **parts):
    self._bleu = bleu
    self._rows = rows
    self._parts = parts

  def evaluate(self, eval_step, params):
    from transformer.experiment.validation import Evaluation  # A slow import.

    sums = jax.device_get(eval_step(params, make_batch(100, self._rows)))
    loss = float(sums['nll'] / sums['weight'])
    values = {'valid/loss': loss, 'valid/bleu': self._bleu(params)}
    return Evaluation(values, **{'translations': {}, **self._parts})


def train_tiny(
  settings,
  model,
  workdir,
  batches=None,
  *,
  validation=None,
  bleu=lambda params: 0.0,
  objective=None,
  params=None,
  mesh=None,
  programs=None,
  **options,
) -> Outcome:
  """Trains in `workdir`, on all devices.

  `validation` is as for `train`; None takes the loss of a batch and BLEU from `bleu`, a function of
  parameters. `programs` are an update and an evaluation; None compiles them, once for all tests.
  """
  from transformer.experiment.open_run import open_run  # Slow imports.
  from transformer.experiment.train_loop import train

  batches = batches or NumberedBatches()
  workdir.mkdir(parents=True, exist_ok=True)
  (workdir / 'run.json').touch()  # A directory with checkpoints must have it.
  with open_run(workdir, settings) as (run, checkpoints):
    if run.is_finished:
      return Outcome(run.step, run.step, run.history['evaluations'], False)
    mesh = mesh or make_mesh(
      settings.mesh, batches.shape[0] // settings.optimizer.num_microbatches
    )
    setup = make_training_setup(settings, model, mesh, objective)
    compiled = CompiledSteps(setup, *(programs or compiled_once(setup, batches.shape)))
    validation = validation or TinyValidation(bleu, batches.shape[0])
    if run.step is None:
      state = setup.first_state(params)
    else:
      state = checkpoints.restore(run.step, setup.abstract_state)
    step, evaluations = train(
      run, checkpoints, compiled, state, batches, validation, **options
    )
    return Outcome(step, run.step, evaluations, True)


@pytest.fixture(scope='session')
def model() -> Transformer:
  """Returns a small model with dropout, so that randomness must resume too."""
  return Transformer(
    ModelConfig(
      num_layers=1,
      model_dim=10,
      ff_dim=14,
      num_heads=2,
      dropout=0.2,
      norm_position='pre',
    ),
    VOCABULARY,
  )


_COMPILED = {}


def compiled_once(setup, shape):
  """Compiles a program once for all tests that use it, since tracing it takes longest."""
  settings = setup.config
  # Only these settings have no influence on the programs.
  train = dataclasses.replace(
    settings.train,
    log_every=1,
    eval_every=1,
    checkpoint_every=1,
    keep=1,
    patience=0,
    best_by='',
    valid_metric='',
    trackers=(),
  )
  leaves, structure = jax.tree.flatten(setup.abstract_state)
  key = (
    settings.optimizer,
    train,
    settings.seed,
    setup.model,
    setup.mesh,
    shape,
    structure,
    tuple(leaves),
    setup.objective,
  )
  if key not in _COMPILED:
    compiled = setup.compile(shape)
    _COMPILED[key] = compiled.train_step, compiled.eval_step
  return _COMPILED[key]
