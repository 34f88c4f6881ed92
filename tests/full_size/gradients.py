"""One training step and one evaluation of the Tiny model, compared with the float64 reference."""

import jax
import numpy as np

from tests.full_size import reference, tiny
from transformer.model.transformer import Transformer
from transformer.training.mesh import make_mesh
from transformer.training.training_setup import make_training_setup

_B1, _EPS = 0.9, 1e-9  # Of Adam.


def measure(folder):
  """Compares a full batch of the config, and many short rows for a shallower pre-norm model."""
  del folder
  exact = {'model__dropout': 0.0, 'optimizer__warmup_steps': 1}
  return {
    'full': compare(
      tiny.make_config(**exact), tiny.random_pairs(tiny.FULL, 64), tiny.VOCABULARY
    ),
    # More than 2¹⁵ positions, beyond which some kernels have failed.
    'rows': compare(
      tiny.make_config(
        **exact,
        model__norm_position='pre',
        model__num_layers=1,
        data__max_length=8,
        train__tokens_per_batch=33_792,
      ),
      tiny.random_pairs(9000, 8, 499, typical=4),
      499,
    ),
  }


def compare(config, pairs, vocabulary: int) -> dict:
  """Computes a step of Adam, whose first moments are then (1 − β₁) · gradient.

  `weights` are the numbers of tokens that the update and the evaluation count. `train`, `nll`,
  `valid` and `norm` are losses and the norm of the gradient, found and wanted.
  """
  model = Transformer(config.model, vocabulary)
  batches = tiny.training_batches(config, pairs)
  mesh = make_mesh(config.mesh, batches.shape.rows)
  compiled = make_training_setup(config, model, mesh).compile(batches.shape)
  before = tiny.random_params(model)
  state = compiled.setup.first_state(before)
  valid = compiled.eval_step(state.params, compiled.setup.shard_batch(batches[0]))
  state, metrics = jax.device_get(compiled.train_step(state, batches[0]))
  adam = state.optimizer[0]

  packed = tiny.pairs_of(batches, 0)
  losses, gradients = reference.loss_and_gradients(
    config.model, before, packed, config.train.label_smoothing
  )

  def found_gradient(mean):
    return mean / (1 - _B1)

  def update(mean, square):
    # Uses the found gradient, because near 0 a small error changes the sign of a gradient.
    scale = np.sqrt(square.astype(np.float64) / (1 - config.optimizer.b2)) + _EPS
    return -config.optimizer.peak_learning_rate * found_gradient(mean) / scale

  return {
    'rows': batches.shape.rows,
    'pairs': len(packed),
    'tokens': losses.tokens,
    'weights': [float(metrics['weight']), float(valid['weight'])],
    'train': [float(metrics['loss']), losses.loss],
    'nll': [float(metrics['nll']), losses.nll],
    'valid': [float(valid['loss']), losses.nll],
    'norm': [
      float(metrics['gradient_norm']),
      float(
        np.sqrt(
          sum(
            np.sum((leaf / losses.tokens) ** 2) for leaf in jax.tree.leaves(gradients)
          )
        )
      ),
    ],
    'gradients': errors(
      jax.tree.map(found_gradient, adam.mu),
      jax.tree.map(lambda leaf: leaf / losses.tokens, gradients),
    ),
    'updates': errors(
      jax.tree.map(np.subtract, state.params, before),
      jax.tree.map(update, adam.mu, adam.nu),
    ),
  }


def errors(found, wanted) -> dict[str, list[float]]:
  """Returns, for each array, the largest error and wanted entry, and the norms of both."""
  assert jax.tree.structure(found) == jax.tree.structure(wanted)
  return {
    jax.tree_util.keystr(path, simple=True, separator='.'): [
      float(norm(array))
      for norm in (lambda x: np.abs(x).max(), np.linalg.norm)
      for array in (leaf - other, other)
    ]
    for (path, leaf), other in zip(
      jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(wanted), strict=True
    )
  }
