"""Frozen parameters keep every bit, cost nothing, and leave the update of the others as it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tiny_training import Settings, make_batch
from tests.training.bigrams import Bigrams
from transformer.errors import UserError
from transformer.model.transformer import init_params
from transformer.training.config import MeshConfig, OptimizerConfig, TrainConfig
from transformer.training.freezing import describe_frozen, frozen_mask
from transformer.training.mesh import make_mesh
from transformer.training.objective import Objective
from transformer.training.step import make_train_step
from transformer.training.update import make_update

PATTERN = 'encoder_.*kernel'


def squares(model, params, *_, **__):
  """A loss of the parameters alone, which compiles at once."""
  loss = sum(jnp.sum(jnp.square(leaf - 0.3)) for leaf in jax.tree.leaves(params))
  return {'loss': loss, 'nll': loss, 'weight': jnp.float32(1)}


def updating(config, freeze, objective=None):
  """Returns an update, and its step without devices."""
  settings = Settings(optimizer=config, train=TrainConfig(freeze=freeze, ema_decay=0.5))
  update = make_update(
    settings, Bigrams(), make_mesh(MeshConfig(data=1), 4, jax.devices()[:1]), objective
  )
  return update, make_train_step(
    update.model, update.optimizer, settings.train, objective=update.objective, seed=0
  )


def by_name(tree):
  return {
    '/'.join(key.key for key in path): np.asarray(leaf)
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }


@pytest.mark.parametrize('algorithm', ['adam', 'muon'])
def test_frozen_parameters_keep_every_bit_and_have_no_state(algorithm):
  config = OptimizerConfig(
    algorithm=algorithm,
    schedule='constant',
    peak_learning_rate=0.01,
    warmup_steps=1,
    weight_decay=0.1,
    clip_norm=0.5,
  )
  params, states = init_params(Bigrams(), 3), []
  for freeze in (PATTERN, ''):
    update, step = updating(config, freeze, Objective(squares))
    state, step = update.first_state(params), jax.jit(step)
    for number in range(2):
      state, metrics = step(state, make_batch(number))
    states.append((state, float(metrics['gradient_norm'])))
  (state, norm), (whole, whole_norm) = states
  frozen = by_name(frozen_mask(PATTERN, params))
  assert {False, True} == set(map(bool, frozen.values()))
  before, after, average = map(by_name, (params, state.params, state.average))
  for name, leaf in before.items():
    assert np.array_equal(leaf, after[name]) == frozen[name], name
    assert np.array_equal(leaf, average[name]) == frozen[name], name
  sizes = [
    sum(leaf.size for leaf in jax.tree.leaves(tree)) for tree in (state.optimizer, whole.optimizer)
  ]
  share = sum(leaf.size for name, leaf in before.items() if frozen[name])
  assert sizes[1] - sizes[0] >= {'adam': 2, 'muon': 1}[algorithm] * share
  # The norm for clipping, and in the metrics, is that of the others.
  assert 0 < norm < whole_norm


def test_the_others_are_updated_as_if_they_were_alone():
  config = OptimizerConfig(schedule='constant', peak_learning_rate=0.01, warmup_steps=1)
  params, updated = init_params(Bigrams(), 3), []
  for freeze in ('encoder_', ''):
    update, step = updating(config, freeze, Objective(squares))
    updated.append(by_name(jax.jit(step)(update.first_state(params), make_batch(0))[0].params))
  for name, is_frozen in by_name(frozen_mask('encoder_', params)).items():
    assert is_frozen or np.array_equal(updated[0][name], updated[1][name]), name


def test_no_gradient_of_a_frozen_layer_is_computed():
  def products(freeze):
    update, step = updating(OptimizerConfig(), freeze)
    return jax.jit(step).lower(update.state, make_batch(0)).cost_analysis()['flops']

  assert products('embedding') < 0.8 * products('')


def test_what_is_frozen_is_told():
  told = describe_frozen('encoder_0/.*kernel', init_params(Bigrams(), 0))
  assert told == 'train.freeze keeps 100 of 330 parameters, in encoder_0'


@pytest.mark.parametrize(('pattern', 'fact'), [('encodr', 'none'), ('.', 'all')])
def test_a_pattern_must_match_some_and_leave_some(pattern, fact):
  with pytest.raises(UserError, match=f'matches {fact}; their names begin with encoder_0'):
    describe_frozen(pattern, init_params(Bigrams(), 0))
