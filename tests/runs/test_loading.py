"""A run loads from the checkpoints that are asked for."""

import contextlib

import chex
import jax
import jax.numpy as jnp
import pytest

from transformer.config import Config
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.experiment.init_from import load_to_host
from transformer.model.transformer import Transformer, init_params
from transformer.runs import run_directory
from transformer.runs.checkpoint_writer import CheckpointWriter
from transformer.runs.loading import load_run, save_run
from transformer.training.step import TrainState

MODEL = {
  'num_layers': 1,
  'model_dim': 8,
  'ff_dim': 12,
  'num_heads': 2,
  'attention_bias': 'all',
}


@pytest.fixture(scope='module')
def vocabulary():
  return Vocabulary.train(['a dog and a man', 'ein hund und ein mann'] * 9, 280)


@pytest.fixture(scope='module')
def params(vocabulary):
  return jax.device_get(
    init_params(
      Transformer(Config.from_dict({'model': MODEL}).model, vocabulary.size), 0
    )
  )


@pytest.mark.parametrize('ema_decay', [0.0, 0.5])
def test_the_chosen_checkpoint_and_the_latest_before_it_are_averaged(
  tmp_path, vocabulary, params, ema_decay
):
  config = Config.from_dict({'model': MODEL, 'train': {'ema_decay': ema_decay}})
  save_run(tmp_path, config, vocabulary, params, [1])
  with contextlib.closing(
    CheckpointWriter(tmp_path / run_directory.CHECKPOINTS, keep=9)
  ) as checkpoints:
    for step in (2, 3, 4):
      scaled = jax.tree.map(lambda leaf, step=step: jnp.asarray(step * leaf), params)
      # With a moving average, the parameters themselves must not be read.
      own = jax.tree.map(jnp.negative, scaled) if ema_decay else scaled
      checkpoints.save(
        TrainState(
          jnp.int32(step), own, optimizer={}, average=scaled if ema_decay else None
        ),
        {
          'evaluations': [
            {'step': past, 'valid/bleu': 9.0 - abs(past - 3), 'valid/loss': 1.0}
            for past in range(1, step + 1)
          ]
        },
      )
  for which, average, steps in (
    ('best', 2, [2, 3]),
    ('latest', 3, [2, 3, 4]),
    ('2', 1, [2]),
  ):
    run = load_run(tmp_path, which, average)
    assert run.checkpoint_steps == steps
    chex.assert_trees_all_close(
      jax.device_get(run.params),
      jax.tree.map(lambda leaf, steps=steps: leaf * (sum(steps) / len(steps)), params),
      rtol=1e-6,
    )
  assert load_to_host(tmp_path).checkpoint_steps == [
    3
  ]  # What another run starts from, or learns from.
  with pytest.raises(
    UserError, match='has 1 checkpoints up to step 1, too few to average 2'
  ):
    load_run(tmp_path, '1', 2)
