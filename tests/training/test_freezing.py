"""Frozen parameters keep every bit, cost nothing, and leave the update of the others as it is."""

import re

import jax
import numpy as np
import pytest

from tests.tiny_training import Settings, make_batch
from transformer.errors import UserError
from transformer.training.config import MeshConfig, OptimizerConfig, TrainConfig
from transformer.training.freezing import describe_frozen, frozen_mask
from transformer.training.mesh import make_mesh
from transformer.training.step import init_params, make_train_step
from transformer.training.update import make_update

PATTERN = 'encoder_|embedding|feed_forward/inner'


def updated(model, config, freeze, updates=2):
  """The first parameters, and the state and metrics after some updates."""
  settings = Settings(optimizer=config, train=TrainConfig(freeze=freeze, ema_decay=0.5))
  update = make_update(settings, model, make_mesh(MeshConfig(data=1), 4, jax.devices()[:1]))
  params = jax.jit(lambda: init_params(model, 3))()
  state = update.first_state(params)
  step = jax.jit(make_train_step(model, update.optimizer, settings.train,
                                 objective=update.objective, seed=0))
  for number in range(updates):
    state, metrics = step(state, make_batch(number))
  return params, state, metrics


def by_name(tree):
  return {'/'.join(each.key for each in path): np.asarray(leaf)
          for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


@pytest.mark.parametrize('algorithm', ['adam', pytest.param('muon', marks=pytest.mark.long)])
def test_frozen_parameters_keep_every_bit_and_have_no_state(model, algorithm):
  config = OptimizerConfig(algorithm=algorithm, schedule='constant', peak_learning_rate=0.01,
                           warmup_steps=1, weight_decay=0.1, clip_norm=0.5)
  params, state, metrics = updated(model, config, PATTERN)
  frozen = by_name(frozen_mask(PATTERN, params))
  assert {False, True} == {bool(each) for each in frozen.values()}
  before, after, average = map(by_name, (params, state.params, state.average))
  for name, leaf in before.items():
    assert np.array_equal(leaf, after[name]) == frozen[name], name
    assert np.array_equal(leaf, average[name]) == frozen[name], name
  whole = make_update(Settings(optimizer=config), model, make_mesh(MeshConfig(data=1), 4,
                                                                  jax.devices()[:1])).state
  sizes = [sum(leaf.size for leaf in jax.tree.leaves(each))
           for each in (state.optimizer, whole.optimizer)]
  share = sum(leaf.size for name, leaf in before.items() if frozen[name])
  moments = {'adam': 2, 'muon': 1}[algorithm]
  assert sizes[1] - sizes[0] >= moments * share
  # The norm for clipping, and in the metrics, is that of the others.
  norms = dict(zip(sorted(params), metrics['layer_gradient_norms'], strict=True))
  assert norms['encoder_0'] == 0 < norms['decoder_0']


def test_the_others_are_updated_as_if_they_were_alone(model):
  config = OptimizerConfig(schedule='constant', peak_learning_rate=0.01, warmup_steps=1)
  params, frozen, _ = updated(model, config, 'encoder_', updates=1)
  _, free, _ = updated(model, config, '', updates=1)
  mask = by_name(frozen_mask('encoder_', params))
  ours, theirs = by_name(frozen.params), by_name(free.params)
  for name, is_frozen in mask.items():
    if not is_frozen:
      np.testing.assert_allclose(ours[name], theirs[name], atol=1e-6)


def test_no_gradient_of_a_frozen_layer_is_computed(model):
  def products(freeze):
    train = TrainConfig(freeze=freeze)
    settings = Settings(train=train)
    update = make_update(settings, model, make_mesh(MeshConfig(data=1), 4, jax.devices()[:1]))
    step = make_train_step(model, update.optimizer, train, objective=update.objective, seed=0)
    return jax.jit(step).lower(update.state, make_batch(0)).compile().cost_analysis()['flops']

  free, without_encoder = products(''), products('encoder_|embedding')
  assert without_encoder < 0.9 * free


@pytest.mark.parametrize(('pattern', 'told'), [
    ('encoder_0/.*bias', r'train.freeze keeps \d+ of [\d,]+ parameters: encoder_0 in part$'),
    ('^target|^decoder_0', r'parameters: decoder_0, target_embedding$')])
def test_what_is_frozen_is_told(model, pattern, told):
  params = jax.eval_shape(lambda: init_params(model, 0))
  assert re.search(told, describe_frozen(pattern, params))


@pytest.mark.parametrize(('pattern', 'fact'), [('encodr', 'none'), ('.', 'all')])
def test_a_pattern_must_match_some_and_leave_some(model, pattern, fact):
  params = jax.eval_shape(lambda: init_params(model, 0))
  with pytest.raises(UserError, match=f'matches {fact}; their names begin with decoder_0'):
    describe_frozen(pattern, params)


def test_a_pattern_that_is_none_is_refused():
  with pytest.raises(UserError, match=r"train.freeze must be a regular expression; got '\('"):
    TrainConfig(freeze='(')
