"""Updates that are not finite, with and without skipping."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.experiment import tiny_runs
from tests.experiment.tiny_runs import final_state, rows_of, steps_in
from tests.tiny_training import NumberedBatches, Settings, make_batch
from transformer.data.batch import UNK_ID, Batch
from transformer.errors import UserError
from transformer.experiment.divergence import check_finite_step
from transformer.model.transformer import init_params
from transformer.training.config import TrainConfig
from transformer.training.mesh import sentence_mesh
from transformer.training.objective import Objective, cross_entropy
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.step import Skips, init_state, make_train_step

# The row with the unknown token decides whether the loss is not finite, its gradient, or both.
LOSS, BOTH, GRADIENT = range(3)


def poison(batch: Batch, kind=BOTH) -> Batch:
  """Puts an unknown token into a batch, for the fixture `poisonous`."""
  tokens = batch.source_tokens.copy()
  tokens[kind, 0] = UNK_ID
  return batch._replace(source_tokens=tokens)


class SomePoisoned(NumberedBatches):
  """Batches that are poisoned at some steps, numbered from 1."""

  def __init__(self, bad, fatal=None):
    super().__init__(fatal)
    self._bad = bad

  def iterate(self, start, stop):
    for step, batch in enumerate(super().iterate(start, stop), start + 1):
      yield poison(batch) if step in self._bad else batch


def poisonous(*arguments, **more):
  """A loss that is NaN for a poisoned batch, or its gradient, or both."""
  totals = cross_entropy(0.1).loss(*arguments, **more)
  bad = jnp.any(arguments[2].source_tokens == UNK_ID, axis=1)
  value = totals['loss'] * jnp.where(bad[BOTH], jnp.nan, 1.0)
  value += jax.lax.stop_gradient(jnp.where(bad[LOSS], jnp.nan, 0.0))
  # The derivative of the root is infinite at 0.
  return {
    **totals,
    'loss': value - 1.0 + jnp.sqrt(jnp.where(bad[GRADIENT], 0.0 * value, 1.0)),
  }


POISONOUS = Objective(poisonous)


def run(model, workdir, bad=(), fatal=None, **changes):
  return tiny_runs.run(
    model, workdir, batches=SomePoisoned(bad, fatal), objective=POISONOUS, **changes
  )


def test_a_skipped_training_step_changes_only_the_step_and_the_counters(model):
  config = Settings().optimizer
  optimizer = make_optimizer(config, make_schedule(config, model.config.model_dim, 100))
  params = init_params(model, 3)
  train = TrainConfig(ema_decay=0.9, max_consecutive_nonfinite=1)
  mesh = sentence_mesh(1)
  step = jax.jit(
    make_train_step(model, optimizer, train, objective=POISONOUS, seed=0, mesh=mesh)
  )
  plain, _ = step(
    init_state(params, optimizer, TrainConfig(ema_decay=0.9)), make_batch(0)
  )
  state, metrics = step(init_state(params, optimizer, train), make_batch(0))
  chex.assert_trees_all_close(state._replace(skips=None), plain, rtol=1e-5, atol=1e-7)
  first = state
  assert list(map(int, (*state.skips, *metrics['skips']))) == [0, 0, 0, 0]
  for number, kind in enumerate((BOTH, LOSS, GRADIENT), 1):
    before = state
    state, metrics = step(state, poison(make_batch(number), kind))
    assert math.isnan(metrics['loss']) == (kind != GRADIENT)
    assert math.isnan(metrics['gradient_norm']) == (kind != LOSS)
    chex.assert_trees_all_equal(
      state,
      before._replace(
        step=before.step + 1, skips=Skips(np.int32(number), np.int32(number))
      ),
    )
  after, _ = step(state, make_batch(4))
  assert list(map(int, after.skips)) == [3, 0]
  assert int(after.optimizer[0].count) == 2 and int(after.step) == 5
  # Dropout depends on the step, which counts skipped training steps.
  again, _ = step(first._replace(step=jnp.int32(4)), make_batch(4))
  chex.assert_trees_all_equal(after, again._replace(skips=after.skips))


def test_the_first_training_step_that_is_not_finite_stops_the_run_and_writes_its_batch(
  model, tmp_path
):
  with pytest.raises(UserError) as raised:
    run(model, tmp_path, bad={10})
  message = str(raised.value)
  assert message.startswith(
    'the loss of step 10 is nan, and the norm of its gradient nan; '
  )
  assert '\n' not in message and 'the step was not saved' in message
  assert steps_in(tmp_path / 'checkpoints') == [5]
  path = tmp_path / 'bad_batches' / '10.npz'
  assert f'its batch is in {path}; lower the' in message
  with np.load(path, allow_pickle=False) as arrays:
    chex.assert_trees_all_equal(Batch(**arrays), poison(make_batch(9)))


@pytest.mark.long
def test_a_killed_run_with_skips_equals_the_uninterrupted_one(model, tmp_path):
  whole, parts = tmp_path / 'whole', tmp_path / 'parts'
  bad = {3, 5, 6, 9, 10, 11, 12}
  run(model, whole, bad, max_consecutive_nonfinite=4)
  with pytest.raises(InterruptedError):
    run(model, parts, bad, fatal=7, max_consecutive_nonfinite=4)
  outcome = run(model, parts, bad, max_consecutive_nonfinite=4)
  assert (outcome.resumed_from, outcome.step) == (5, 12)
  chex.assert_trees_all_equal(final_state(parts), final_state(whole))
  assert rows_of(parts) == rows_of(whole)
  lines = [row for row in rows_of(whole) if 'train/loss' in row]
  assert [(row['train/skipped'], row['train/skipped_in_a_row']) for row in lines] == [
    (1, 0),
    (3, 0),
    (7, 4),
  ]
  # It rises to 0.01 over three training steps; the third step was skipped.
  assert [row['train/learning_rate'] for row in lines] == pytest.approx(
    [0.02 / 3, 0.01, 0.01]
  )
  assert [row['train/loss'] is None for row in lines] == [False, False, True]
  assert sorted(path.name for path in (whole / 'bad_batches').glob('*.npz')) == sorted(
    f'{step}.npz' for step in bad
  )


@pytest.mark.long
def test_one_too_many_in_a_row_stops_the_run_until_more_may_be_skipped(model, tmp_path):
  for _ in range(2):  # The checkpoint has the count of those that were skipped before.
    with pytest.raises(
      UserError, match=r'step 9 is nan.*exceeds train.max_consecutive_nonfinite=2;'
    ):
      run(model, tmp_path, bad={2, 7, 8, 9}, max_consecutive_nonfinite=2)
    assert steps_in(tmp_path / 'checkpoints') == [5]
  run(model, tmp_path, bad={2, 7, 8, 9}, max_consecutive_nonfinite=3)
  assert list(map(int, final_state(tmp_path)['skips'].values())) in ([4, 0], [0, 4])


def bad_metrics(total):
  return {
    'loss': np.float32('nan'),
    'gradient_norm': np.float32(1),
    'skips': Skips(total, 1),
  }


def test_skipped_batches_do_not_fill_the_disk(tmp_path):
  mixed = make_batch(0)._replace(corpus_ids=make_batch(0).target_segments)
  for number in range(1, 14):
    assert not check_finite_step(tmp_path, 1, number, mixed, bad_metrics(number))
  assert len(list((tmp_path / 'bad_batches').iterdir())) == 10
  with pytest.raises(UserError, match=r'bad_batches/14\.npz; lower'):
    metrics = {**bad_metrics(14), 'skips': Skips(14, 2)}
    check_finite_step(tmp_path, 1, 14, make_batch(0), metrics)
  for number, batch in ((1, mixed), (14, make_batch(0))):
    with np.load(
      tmp_path / 'bad_batches' / f'{number}.npz', allow_pickle=False
    ) as arrays:
      chex.assert_trees_all_equal(Batch(**arrays), batch)
