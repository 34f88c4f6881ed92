"""Log-probabilities of tokens in packed rows, in rows of a single pair, and in longer rows."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.full_size import tiny
from transformer.data.batches.packing import PackedRows
from transformer.data.batches.training_batches import BatchShape, assemble_batch
from transformer.model.transformer import Transformer
from transformer.system.processes import to_global
from transformer.training.mesh import batch_sharding, make_mesh, replicated
from transformer.training.objective import shift_right
from transformer.training.training_setup import make_training_setup


def measure(folder):
  """Compares the log-probabilities of the same pairs in different rows.

  Returns:
    A dict:

    - `pairs`, `all`: numbers of pairs in separate rows, and in the full batch,
    - `fullest`: number of pairs in the fullest row,
    - `spread`: standard deviation of the log-probabilities,
    - `otherwise`, `alone`, `longer`: largest difference of pairs from the full batch: in other
      rows, by themselves, and by themselves in longer rows,
    - `evaluated`: sums for the full `batch` and for pairs `alone`, found and wanted.
  """
  del folder
  config = tiny.make_config(model__norm_position='pre')
  model = Transformer(config.model, tiny.VOCABULARY)
  batches = tiny.training_batches(config, tiny.random_pairs(tiny.FULL, 64))
  assert batches.batches_in_epoch == 1
  mesh = make_mesh(config.mesh, batches.shape.rows)
  compiled = make_training_setup(config, model, mesh).compile(batches.shape)
  params = jax.device_put(tiny.random_params(model), replicated(mesh))
  log_probs = jax.jit(lambda params, batch: token_log_probs(model, params, batch))

  def of_pairs(rows: PackedRows, shape: BatchShape):
    """Returns log-probabilities for each pair, and the sum of the compiled evaluation."""
    batch = assemble_batch(batches.corpora, rows, shape)
    found = np.asarray(log_probs(params, batch))
    starts = np.split(rows.pairs, np.cumsum(rows.sizes)[:-1])
    of_pair = {
      pair: found[row][batch.target_segments[row] == segment]
      for row, pairs in enumerate(starts)
      for segment, pair in enumerate(pairs, 1)
    }
    if shape != batches.shape:
      return of_pair, None
    return of_pair, float(
      compiled.eval_step(params, to_global(batch, batch_sharding(mesh)))['nll']
    )

  rows = batches.packed_rows(0)[0]
  packed, whole = of_pairs(rows, batches.shape)
  otherwise, _ = of_pairs(batches.packed_rows(1)[0], batches.shape)
  some = np.sort(rows.pairs)[: batches.shape.rows]
  single = PackedRows(some, np.ones_like(some))
  alone, of_some = of_pairs(single, batches.shape)
  longer, _ = of_pairs(single, BatchShape(batches.shape.rows, 83, 97))

  def difference(other):
    return max(
      float(np.abs(packed[pair] - found).max()) for pair, found in other.items()
    )

  return {
    'pairs': len(alone),
    'fullest': int(rows.sizes.max()),
    'all': len(packed),
    'spread': float(np.std(np.concatenate(list(packed.values())))),
    'otherwise': difference(otherwise),
    'alone': difference(alone),
    'longer': difference(longer),
    'evaluated': {
      'batch': [whole, -float(sum(scores.sum() for scores in packed.values()))],
      'alone': [of_some, -float(sum(packed[pair].sum() for pair in some))],
    },
  }


def token_log_probs(model: Transformer, params, batch):
  """Returns the log-probability of each target token by teacher forcing, [B, T]."""
  x_BTD, _ = model.apply(
    {'params': params},
    batch.source_tokens,
    batch.source_segments,
    batch.source_positions,
    shift_right(batch.target_tokens, batch.target_positions),
    batch.target_segments,
    batch.target_positions,
  )
  log_probs_BTN = jax.nn.log_softmax(
    model.apply({'params': params}, x_BTD, method='logits')
  )
  return jnp.take_along_axis(log_probs_BTN, batch.target_tokens[..., None], -1)[..., 0]
