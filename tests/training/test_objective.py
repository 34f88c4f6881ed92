"""A training step minimizes a custom objective, as in docs/plugins.md."""

import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tiny_training import Settings, make_batch, train_tiny
from tests.training.bigram_model import Bigrams
from transformer.data.config import DataConfig
from transformer.errors import UserError
from transformer.experiment.meter import WALL_CLOCK, Meter
from transformer.model.transformer import init_params
from transformer.runs.metrics_file import read_metrics
from transformer.training.config import MeshConfig, OptimizerConfig, TrainConfig
from transformer.training.mesh import make_mesh
from transformer.training.objective import (
  RESERVED_METRICS,
  Objective,
  check_sums,
  cross_entropy,
  duplicate_batch,
  make_objective,
  token_weights,
)
from transformer.training.training_setup import make_training_setup


def settings(*objective):
  return types.SimpleNamespace(train=TrainConfig(objective=objective))


def nothing(config):
  pass


def bare_loss(config):
  return lambda model, params, batch, key: {}


def without_weight(config):
  return Objective(lambda *_, **__: {'loss': jnp.float32(0), 'nll': jnp.float32(0)})


def wrong(config):
  return Objective(lambda *_, **__: 1 / 0)


def more(name, total):
  """Returns an objective that returns one more sum."""
  return lambda config: Objective(
    lambda *_, **__: {'loss': 1.0, 'nll': 1.0, 'weight': 1.0, name: total}
  )


taken, odd, several = more('fill', 1.0), more('a b', 1.0), more('aux', jnp.ones(3))
of_a_row, whole = more('loss', jnp.ones(3)), more('aux/parts', 2)


def of_vocabulary(config):
  return lambda vocabulary: Objective(wrong, frozen=np.ones(vocabulary))


def test_the_example_of_the_page_is_cross_entropy_if_all_tokens_count_alike(
  doc_plugins,
):
  model = Bigrams()
  params, key = init_params(model, 3), jax.random.key(1)

  def value(objective):
    return jax.jit(
      jax.value_and_grad(
        lambda params: objective.loss(
          model, params, make_batch(0), key, frozen=(), num_row_shards=1
        )['loss']
      )
    )(params)

  focal, plain = (
    value(make_objective(settings('my_losses:focal', gamma), None))
    for gamma in (2.0, 0.0)
  )
  chex.assert_trees_all_close(plain, value(cross_entropy(0.0)), rtol=1e-3, atol=1e-4)
  assert 0 < focal[0] < 0.99 * plain[0]


def test_a_run_minimizes_its_objective(doc_plugins, tmp_path):
  objective = make_objective(settings('my_losses:focal'), None)
  outcome = train_tiny(
    Settings(train=TrainConfig(steps=2, tokens_per_batch=44)),
    Bigrams(),
    tmp_path,
    objective=objective,
  )
  assert outcome.step == 2
  first, *_ = read_metrics(tmp_path / 'metrics.jsonl')
  assert (
    0 < first['train/hard'] <= 1
    and 'train/loss' in first
    and 'train/weight' not in first
  )


def with_targets(model, params, batch, dropout_key=None, **more):
  """Cross entropy, and the sum of the ids of all targets."""
  sums = cross_entropy(0.0).loss(model, params, batch, dropout_key, **more)
  return {**sums, 'ids': jnp.sum(batch.target_tokens * token_weights(batch))}


@pytest.mark.parametrize(
  ('devices', 'num_microbatches'), [(1, 1), (1, 2), (2, 1), (4, 2)]
)
def test_a_further_sum_is_divided_by_the_weight_of_all_batches_once(
  devices, num_microbatches
):
  model, meter, sums = Bigrams(rate=0.0), Meter({}, positions=88), np.zeros(2)
  mesh = make_mesh(MeshConfig(), 8 // num_microbatches, jax.devices()[:devices])
  setup = make_training_setup(
    Settings(optimizer=OptimizerConfig(num_microbatches=num_microbatches)),
    model,
    mesh,
    Objective(with_targets),
  )
  step = setup.lower((8, 13, 11)).compile()
  state = setup.first_state()
  for number in range(2):
    batch = make_batch(number, 8)
    # Of unequal weights, so that a mean of means would differ.
    batch = batch._replace(
      target_segments=batch.target_segments * (np.arange(8)[:, None] % 3 > 0)
    )
    real = batch.target_segments > 0
    sums += batch.target_tokens[real].sum(), real.sum()
    state, metrics = step(state, batch)
    meter.add(jax.device_get(metrics))
  values = meter.flush(0.1)
  assert values['train/ids'] == pytest.approx(sums[0] / sums[1], rel=1e-6)
  assert {*values} - {'train/ids', 'train/loss'} <= {
    *WALL_CLOCK,
    *(f'train/{name}' for name in RESERVED_METRICS),
  }


def with_corpora(model, params, batch, dropout_key=None, **more):
  """Cross entropy, and the numbers of tokens of the corpora; twins halve each token."""
  sums = cross_entropy(0.0).loss(model, params, batch, dropout_key, **more)
  doubled, halves_BT = duplicate_batch(batch)
  for number in range(3):
    sums[f'tokens/{number}'] = jnp.sum(
      token_weights(batch) * (batch.corpus_ids == number)
    )
    sums[f'halves/{number}'] = jnp.sum(halves_BT * (doubled.corpus_ids == number))
  return sums


@pytest.mark.parametrize(('devices', 'num_microbatches'), [(1, 1), (1, 2), (4, 2)])
def test_an_objective_sees_the_corpora_of_a_mixture(devices, num_microbatches):
  mesh = make_mesh(MeshConfig(), 8 // num_microbatches, jax.devices()[:devices])
  mixed = Settings(
    optimizer=OptimizerConfig(num_microbatches=num_microbatches),
    data=DataConfig(train=('a', 'b', 'c'), max_length=11),
  )
  setup = make_training_setup(mixed, Bigrams(rate=0.0), mesh, Objective(with_corpora))
  _, step, evaluate = setup.compile((8, 13, 11))
  plain = make_batch(0, 8)
  # Pairs of 3 and 5 target tokens in each row; every third row is empty.
  rows = np.arange(8)[:, None]
  segments = plain.target_segments * (rows % 3 > 0)
  batch = plain._replace(
    target_segments=segments,
    corpus_ids=np.where(segments > 0, rows % 2 + (segments == 2), 0).astype(np.int32),
  )
  state, metrics = step(setup.first_state(), batch)
  for name in ('tokens', 'halves'):
    assert [float(metrics[f'{name}/{number}']) for number in range(3)] == [6, 19, 15]
  # Validation sets are of no corpus.
  assert float(evaluate(state.params, plain)['weight']) == 64


@pytest.mark.parametrize(
  ('objective', 'fact'),
  [
    (('no_module:f',), 'the objective no_module:f cannot be imported'),
    (('my_losses:focal', 1.0, 2.0), r'1\.0, 2\.0\) cannot be built: TypeError'),
    ((f'{__name__}:nothing',), 'must return an Objective, .*; got None'),
    ((f'{__name__}:bare_loss',), 'must return an Objective, .* failed: TypeError'),
    ((f'{__name__}:wrong',), 'wrong failed: ZeroDivisionError'),
    (
      (f'{__name__}:without_weight',),
      'a dict with loss, nll and weight; got loss, nll',
    ),
    ((f'{__name__}:taken',), 'other than perplexity, .*; got fill of shape'),
    ((f'{__name__}:odd',), 'with names of letters, .*; got a b of shape'),
    ((f'{__name__}:several',), r'scalars, .*; got aux of shape \(3,\)'),
    ((f'{__name__}:of_a_row',), r'got loss of shape \(3,\)'),
  ],
)
def test_user_error_in_an_objective_is_a_one_line_message(doc_plugins, objective, fact):
  with pytest.raises(UserError, match=fact) as caught:
    check_sums(make_objective(settings(*objective), None).loss())
  assert '\n' not in str(caught.value)


def test_a_number_is_a_sum_as_well():
  sums = check_sums(make_objective(settings(f'{__name__}:whole'), None).loss())
  assert sums['aux/parts'] == 2 and all(
    total.dtype == jnp.float32 for total in sums.values()
  )


def test_an_objective_may_be_made_for_a_vocabulary():
  objective = make_objective(settings(f'{__name__}:of_vocabulary'), 5)
  assert objective.arguments[0].shape == (5,)
  assert cross_entropy(0.1).arguments == ()
