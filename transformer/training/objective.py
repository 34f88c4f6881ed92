"""What an update minimises: the seam `train.objective`, and its default, the paper's loss."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer import own_code
from transformer.config import Config
from transformer.data.batch import BOS_ID, Batch
from transformer.errors import UserError, shown
from transformer.model.building import Model
from transformer.ops.losses import smoothed_cross_entropy

# The Flax collection of a model's auxiliary losses.
LOSSES = 'losses'
# The sums of every objective, and the names that the metrics of an update have besides.
SUMS = 'loss', 'nll', 'weight'
TAKEN = (
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
  """What an update minimises.

  Attributes:
    loss: called with the model, its parameters, a batch and the random key of dropout (None
      is without), and by name with `frozen`, the arrays below, and `devices`, the number of
      devices that the rows are split over. Returns float32 sums over the target tokens of the
      batch, in nats: `loss`, which is differentiated; `nll`, the plain cross entropies; and
      `weight`, by which both are divided. So is every further sum, logged as `train/NAME`.
    passes: how often each token of a batch goes through the model, forward and back.
    extra_models: other models that each batch goes through, only forward.
    frozen: a pytree of arrays that no update changes; each device holds all of them.
    sources: what identifies `frozen`, as JSON data; a run goes on only with the same.
  """

  loss: Callable[..., dict[str, jax.Array]]
  passes: int = 1
  extra_models: Sequence[Any] = ()
  frozen: Any = ()
  sources: Sequence[Mapping] = ()

  @property
  def arguments(self) -> tuple[Any, ...]:
    """What an update takes after the state and the batch: the frozen arrays, if any."""
    return (self.frozen,) if jax.tree.leaves(self.frozen) else ()


def make_objective(config: Config, vocabulary) -> Objective:
  """Returns the objective of a run with a `RunVocabulary`; loads its frozen arrays.

  Raises `UserError` if it cannot be imported or built, or is none.
  """
  setting = config.train.objective
  if not setting:
    return smoothed(config.train.label_smoothing)
  spec = own_code.name_of(setting)
  objective = own_code.build(setting, 'objective', config)
  if callable(objective):
    objective = objective(vocabulary)
  if not isinstance(objective, Objective):
    raise UserError(
      f'the objective {spec} must return an Objective, or a function of the '
      f'vocabulary that does; got {shown(objective)}'
    )
  guarded = own_code.guarded(f'the objective {spec} failed')
  return objective._replace(loss=guarded(objective.loss))


def check_sums(sums: Mapping) -> dict[str, jax.Array]:
  """Returns the sums of an objective as float32.

  Raises `UserError` if they lack `loss`, `nll` or `weight`, or have a wrong name or shape.
  """
  if not set(SUMS) <= set(sums):
    raise UserError(
      f'train.objective must return a dict with loss, nll and weight; got {", ".join(sums)}'
    )
  for name, total in sums.items():
    if name in TAKEN or not re.fullmatch(r'[\w./-]+', name) or jnp.shape(total):
      raise UserError(
        f'train.objective must return sums, and a model auxiliary losses, which are scalars, by '
        f'names of letters, digits and _./- other than {", ".join(TAKEN)}; got {name} of shape '
        f'{jnp.shape(total)}'
      )
  return {name: jnp.asarray(total, jnp.float32) for name, total in sums.items()}


@functools.cache
def smoothed(smoothing: float) -> Objective:
  """Returns label-smoothed cross entropy (section 5.4), the default objective."""

  def loss(model, params, batch, dropout_key=None, *, frozen=(), devices=1):
    x_BTD, output_ND, losses = forward(model, params, batch, dropout_key)
    return add_losses(
      smoothed_cross_entropy(
        x_BTD,
        output_ND,
        batch.target_tokens,
        token_weights(batch),
        smoothing,
        devices=devices,
      ),
      losses,
    )

  return Objective(loss)


def model_inputs(batch: Batch) -> tuple[Any, ...]:
  """Returns the arguments of a model for teacher forcing on a batch."""
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
  """Runs teacher forcing; without a random key there is no dropout.

  Returns:
    The decoder's output x_BTD, the output projection output_ND, whose product x · outputᵀ is the
    logits, and the model's auxiliary losses by name, for `add_losses`.
  """
  (x_BTD, output_ND), variables = model.apply(
    {'params': params},
    *model_inputs(batch),
    deterministic=dropout_key is None,
    rngs=None if dropout_key is None else {'dropout': dropout_key},
    mutable=[LOSSES],
  )
  losses: dict[str, jax.Array] = {}
  for path, value in jax.tree_util.tree_leaves_with_path(variables.get(LOSSES, {})):
    *_, name = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
    if name in SUMS:
      raise UserError(
        f'an auxiliary loss of a model must not have the name {name} of another sum'
      )
    losses[name] = losses.get(name, 0.0) + value.astype(jnp.float32)
  return x_BTD, output_ND, losses


def add_losses(
  sums: Mapping[str, jax.Array], losses: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
  """Returns the sums of an objective with auxiliary losses added, each by its name, too.

  An auxiliary loss is one of a token on average, so that its sum is its product with the weight.
  """
  more = {name: value * sums['weight'] for name, value in losses.items()}
  return {**sums, 'loss': sum(more.values(), sums['loss']), **more}


def token_weights(batch: Batch):
  """Returns 1 for each target token, and 0 for padding, float32 [B, T]."""
  return (batch.target_segments > 0).astype(jnp.float32)


def twice(array):
  """Returns an array with each row followed by its twin, so that both are on the same device."""
  return jnp.repeat(array, 2, axis=0)


def twins(batch: Batch):
  """Returns a batch with each row twice, and the weights of its tokens, halved."""
  return jax.tree.map(twice, (batch, token_weights(batch) / 2))


def shift_right(tokens_BT, positions_BT):
  """Returns the decoder's inputs: each packed target shifted right by one, after `BOS_ID`."""
  before_BT = jnp.pad(tokens_BT, ((0, 0), (1, 0)))[:, :-1]
  return jnp.where(positions_BT == 0, BOS_ID, before_BT)
