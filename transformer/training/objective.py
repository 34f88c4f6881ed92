"""The extension point `train.objective`, and its default, the paper's loss."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer import plugins
from transformer.config import Config
from transformer.data.batch import BOS_ID, Batch
from transformer.errors import UserError, short_repr
from transformer.model.building import Model
from transformer.ops.losses import smoothed_cross_entropy

# The Flax collection of a model's auxiliary losses.
LOSSES_COLLECTION = 'losses'
# The sums of every objective, and the names of other metrics of a training step.
REQUIRED_SUMS = 'loss', 'nll', 'weight'
RESERVED_METRICS = (
  'perplexity',
  'gradient_norm',
  'learning_rate',
  'source_tokens',
  'fill',
  'data_wait',
  'steps',
  'skips',
  'skipped',
  'skipped_in_a_row',
)


class Objective(NamedTuple):
  """A training objective.

  Attributes:
    loss: called with the model, its parameters, a batch and the random key of dropout (None: no
      dropout). Keyword arguments: `frozen`, the arrays below, and `num_row_shards`, the number of
      shards that the rows are split into. Returns float32 sums over the target tokens of the batch,
      in nats: `loss`, which is differentiated; `nll`, the plain cross entropies; and `weight`, the
      divisor of both. Every further sum is also divided by `weight`, and logged as `train/NAME`.
    passes: number of forward and backward passes per token of a batch.
    extra_models: other models, each with one forward pass per batch.
    frozen: a pytree of arrays that are not trained, replicated on all devices.
    provenance: JSON data that identifies `frozen`; it cannot change on resume.
  """

  loss: Callable[..., dict[str, jax.Array]]
  passes: int = 1
  extra_models: Sequence[Any] = ()
  frozen: Any = ()
  provenance: Sequence[Mapping] = ()

  @property
  def arguments(self) -> tuple[Any, ...]:
    """Arguments of a training step after state and batch: the frozen arrays, if any."""
    return (self.frozen,) if jax.tree.leaves(self.frozen) else ()


def make_objective(config: Config, vocabulary) -> Objective:
  """Returns the objective of a run with a `RunVocabulary`; loads its frozen arrays.

  Raises `UserError` if it cannot be imported or built, or is not an `Objective`.
  """
  setting = config.train.objective
  if not setting:
    return cross_entropy(config.train.label_smoothing)
  spec = plugins.name_of(setting)
  objective = plugins.build(setting, 'objective', config)
  if callable(objective):
    failure = (
      f'the objective {spec} must return an Objective, or a function of the vocabulary that '
      'does; calling the function with the vocabulary failed'
    )
    objective = plugins.as_user_error(failure)(objective)(vocabulary)
  if not isinstance(objective, Objective):
    raise UserError(
      f'the objective {spec} must return an Objective, or a function of the '
      f'vocabulary that does; got {short_repr(objective)}'
    )
  guarded = plugins.as_user_error(f'the objective {spec} failed')
  return objective._replace(loss=guarded(objective.loss))


def check_sums(sums: Mapping) -> dict[str, jax.Array]:
  """Returns the sums of an objective as float32.

  Raises `UserError` if they lack `loss`, `nll` or `weight`, or have a wrong name or shape.
  """
  if not set(REQUIRED_SUMS) <= set(sums):
    raise UserError(
      f'train.objective must return a dict with loss, nll and weight; got {", ".join(sums)}'
    )
  for name, total in sums.items():
    if (
      name in RESERVED_METRICS
      or not re.fullmatch(r'[\w./-]+', name)
      or jnp.shape(total)
    ):
      raise UserError(
        'the sums of train.objective and the auxiliary losses of a model must be scalars, with '
        f'names of letters, digits and _./- other than {", ".join(RESERVED_METRICS)}; got '
        f'{name} of shape {jnp.shape(total)}'
      )
  return {name: jnp.asarray(total, jnp.float32) for name, total in sums.items()}


@functools.cache
def cross_entropy(smoothing: float) -> Objective:
  """Returns the default objective, label-smoothed cross entropy (section 5.4)."""

  def loss(model, params, batch, dropout_key=None, *, frozen=(), num_row_shards=1):
    x_BTD, output_ND, aux_losses = forward(model, params, batch, dropout_key)
    return add_auxiliary_losses(
      smoothed_cross_entropy(
        x_BTD,
        output_ND,
        batch.target_tokens,
        token_weights(batch),
        smoothing,
        num_row_shards=num_row_shards,
      ),
      aux_losses,
    )

  return Objective(loss)


def model_inputs(batch: Batch) -> tuple[Any, ...]:
  """Returns the model arguments for teacher forcing on a batch."""
  return (
    batch.source_tokens,
    batch.source_segments,
    batch.source_positions,
    shift_right(batch.target_tokens, batch.target_positions),
    batch.target_segments,
    batch.target_positions,
  )


def forward(
  model: Model, params, batch: Batch, dropout_key=None
) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
  """Runs teacher forcing, with dropout if `dropout_key` is given.

  Returns:
    The decoder output [B, T, D] and the output projection [N, D], whose product x · outputᵀ is the
    logits; and the auxiliary losses of the model by name, for `add_auxiliary_losses`.
  """
  (x_BTD, output_ND), variables = model.apply(
    {'params': params},
    *model_inputs(batch),
    deterministic=dropout_key is None,
    rngs=None if dropout_key is None else {'dropout': dropout_key},
    mutable=[LOSSES_COLLECTION],
  )
  aux_losses = {}
  for path, value in jax.tree_util.tree_leaves_with_path(
    variables.get(LOSSES_COLLECTION, {})
  ):
    *_, name = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
    if name in REQUIRED_SUMS:
      raise UserError(
        f'the auxiliary loss {name} of the model has a reserved name; rename it'
      )
    aux_losses[name] = aux_losses.get(name, 0.0) + value.astype(jnp.float32)
  return x_BTD, output_ND, aux_losses


def add_auxiliary_losses(
  sums: Mapping[str, jax.Array], aux_losses: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
  """Returns the sums of an objective with the auxiliary losses added to `loss`.

  Each auxiliary loss is also a new entry. It is a mean over tokens, so its sum is the mean times
  `weight`.
  """
  aux_sums = {name: value * sums['weight'] for name, value in aux_losses.items()}
  return {**sums, 'loss': sum(aux_sums.values(), sums['loss']), **aux_sums}


def token_weights(batch: Batch):
  """Returns 1 for each target token, and 0 for padding, float32 [B, T]."""
  return (batch.target_segments > 0).astype(jnp.float32)


def duplicate_rows(array):
  """Returns the array with each row followed by its copy, so that both are on the same device."""
  return jnp.repeat(array, 2, axis=0)


def duplicate_batch(batch: Batch):
  """Returns the batch with each row duplicated, and its token weights, halved."""
  return jax.tree.map(duplicate_rows, (batch, token_weights(batch) / 2))


def shift_right(tokens_BT, positions_BT):
  """Returns the decoder inputs: each packed target shifted right by one, starting with `BOS_ID`."""
  previous_BT = jnp.pad(tokens_BT, ((0, 0), (1, 0)))[:, :-1]
  return jnp.where(positions_BT == 0, BOS_ID, previous_BT)
