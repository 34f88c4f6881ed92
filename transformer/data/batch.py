"""A batch of packed rows, and the four reserved token ids."""

from typing import Any, NamedTuple

import numpy as np

from transformer.errors import UserError, short_repr

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3


class Batch(NamedTuple):
  """Packed rows of several sentence pairs each; all arrays are int32 [row, length].

  The pairs of a row have segment ids 1, 2, … on both sides; segment 0 is padding. Positions
  restart from 0 in each sentence. Sentences end with `EOS_ID`. They have no BOS;
  `training.objective.model_inputs` shifts the target.

  `corpus_ids` holds, for each target position, the index in `data.train` of the pair's corpus; 0 at
  padding. It is None if no corpora are mixed: in training on one corpus, in validation, and in
  the result of `run.batch`.
  """

  source_tokens: np.ndarray
  source_segments: np.ndarray
  source_positions: np.ndarray
  target_tokens: np.ndarray
  target_segments: np.ndarray
  target_positions: np.ndarray
  corpus_ids: np.ndarray | None = None

  def arrays(self) -> dict:
    """Returns the arrays by name, without `corpus_ids` if it is None."""
    arrays = self._asdict()
    if self.corpus_ids is None:
      del arrays['corpus_ids']
    return arrays


def check_batch(batch: Any):
  """Raises `UserError` unless all arrays are integer [row, length], with one length per side."""
  arrays = list(batch.arrays().values()) if isinstance(batch, Batch) else [None]
  if not all(
    np.issubdtype(getattr(array, 'dtype', float), np.integer) for array in arrays
  ):
    raise UserError(
      f'expected a Batch of integers, as run.batch returns it; got {short_repr(batch)}'
    )
  shapes = [array.shape for array in arrays]
  source = batch.source_tokens.shape
  target = batch.target_tokens.shape
  expected = [source] * 3 + [target] * (len(arrays) - 3)
  if (
    shapes != expected or len(source) != 2 or len(target) != 2 or source[0] != target[0]
  ):
    raise UserError(
      f'the arrays of a batch must have shapes [row, length], with one length for '
      f'the source and one for the target; got {short_repr(shapes)}'
    )
