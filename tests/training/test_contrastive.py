"""The contrastive loss of docs/objectives.md is of sentences, though rows hold several."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.tiny_training import VOCABULARY, Settings, make_batch
from transformer.config import Config
from transformer.data.batch import Batch
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.training.config import TrainConfig
from transformer.training.mesh import make_mesh
from transformer.training.objective import make_objective
from transformer.training.training_setup import make_training_setup

SETTINGS = Config(
  model=ModelConfig(num_layers=1, model_dim=10, ff_dim=14, num_heads=2),
  train=TrainConfig(objective=('my_contrast:contrastive', 0.5)),
  optimizer=Settings().optimizer,
)
MODEL = Transformer(SETTINGS.model, VOCABULARY)


def unpacked(batch: Batch) -> Batch:
  """Returns the pairs of a batch, each in a separate row, after a row of padding."""
  rows = [[np.zeros((1, array.shape[1]), np.int32)] for array in batch[:6]]
  for row in range(len(batch.source_tokens)):
    for segment in (1, 2):
      for side in (0, 3):
        tokens, segments, positions = (array[row] for array in batch[side : side + 3])
        own = segments == segment
        for arrays, values in zip(
          rows[side : side + 3], (tokens[own], own[own], positions[own]), strict=True
        ):
          arrays.append(np.pad(values, (0, len(own) - own.sum()))[None])
  return Batch(*(np.concatenate(arrays).astype(np.int32) for arrays in rows))


def contrast_of(batch):
  objective = make_objective(SETTINGS, None)
  sums = objective.loss(
    MODEL, init_params(MODEL, 3), batch, None, frozen=(), num_row_shards=1
  )
  return float(sums['contrast'] / sums['weight'])


def test_a_packed_sentence_has_the_same_contrast_as_in_a_separate_row(doc_plugins):
  packed = make_batch(0)
  assert contrast_of(packed) == pytest.approx(contrast_of(unpacked(packed)), rel=1e-4)


def test_training_brings_a_sentence_near_to_its_translation(doc_plugins):
  objective = make_objective(SETTINGS, None)
  setup = make_training_setup(SETTINGS, MODEL, make_mesh(SETTINGS.mesh, 4), objective)
  batch = make_batch(0)
  compiled = setup.compile((*batch.source_tokens.shape, batch.target_tokens.shape[1]))
  state = setup.first_state()
  contrasts = []
  for _ in range(30):
    state, metrics = compiled.train_step(state, batch)
    contrasts.append(float(jax.device_get(metrics['contrast'] / metrics['weight'])))
  assert contrasts[-1] < 0.5 * contrasts[0]


def test_separate_vocabularies_are_an_error(doc_plugins):
  separate = dataclasses.replace(
    SETTINGS,
    data=dataclasses.replace(SETTINGS.data, shared_vocabulary=False),
    model=dataclasses.replace(SETTINGS.model, share_embeddings=False),
  )
  with pytest.raises(UserError, match='shared_vocabulary'):
    make_objective(separate, None)
