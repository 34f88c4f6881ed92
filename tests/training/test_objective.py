"""An objective of one's own, as docs/own-parts.md shows it, is what an update minimises."""

import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tiny_training import Settings, make_batch, train_tiny
from tests.training.bigrams import Bigrams
from transformer.errors import UserError
from transformer.model.transformer import init_params
from transformer.training.config import TrainConfig
from transformer.training.objective import Objective, make_objective, smoothed


def settings(*objective):
  return types.SimpleNamespace(train=TrainConfig(objective=objective))


def nothing(config):
  pass


def without_weight(config):
  return Objective(lambda *_, **__: {'loss': jnp.float32(0), 'nll': jnp.float32(0)})


def wrong(config):
  return Objective(lambda *_, **__: 1 / 0)


def of_vocabulary(config):
  return lambda vocabulary: Objective(wrong, frozen=np.ones(vocabulary))


def test_the_example_of_the_page_is_cross_entropy_if_all_tokens_count_alike(own_parts):
  model = Bigrams()
  params, key = init_params(model, 3), jax.random.key(1)

  def value(objective):
    return jax.jit(jax.value_and_grad(lambda params: objective.loss(
        model, params, make_batch(0), key, frozen=(), devices=1)['loss']))(params)

  focal, plain = (value(make_objective(settings('my_losses:focal', gamma))(None))
                  for gamma in (2.0, 0.0))
  chex.assert_trees_all_close(plain, value(smoothed(0.0)), rtol=1e-3, atol=1e-4)
  assert 0 < focal[0] < 0.99 * plain[0]


def test_a_run_minimises_its_objective(own_parts, tmp_path):
  objective = make_objective(settings('my_losses:focal'))(None)
  outcome = train_tiny(Settings(train=TrainConfig(steps=2, tokens_per_batch=44)), Bigrams(),
                       tmp_path, objective=objective)
  assert outcome.step == 2


@pytest.mark.parametrize(('objective', 'fact'), [
    (('no_module:f',), 'the objective no_module:f cannot be imported'),
    (('my_losses:focal', 1.0, 2.0), 'cannot be made with the numbers 1.0, 2.0: TypeError'),
    ((f'{__name__}:nothing',), "must return an Objective, .*; got None"),
    ((f'{__name__}:wrong',), 'wrong failed: ZeroDivisionError'),
    ((f'{__name__}:without_weight',), 'a dict with loss, nll and weight; got loss, nll')])
def test_a_mistake_is_one_line_that_names_the_objective(own_parts, objective, fact):
  with pytest.raises(UserError, match=fact) as caught:
    make_objective(settings(*objective))(None).loss()
  assert '\n' not in str(caught.value)


def test_an_objective_may_be_made_for_a_vocabulary():
  objective = make_objective(settings(f'{__name__}:of_vocabulary'))(5)
  assert objective.arguments[0].shape == (5,)
  assert smoothed(0.1).arguments == ()
