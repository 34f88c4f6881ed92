"""A batch of packed rows, and the four reserved token ids."""

from typing import NamedTuple

import numpy as np

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3


class Batch(NamedTuple):
  """Rows of several sentence pairs each; all arrays are int32 [row, length].

  The pairs of a row have segments 1, 2, … on both sides; segment 0 is padding. Positions
  count from 0 within each sentence. Sentences end with `EOS_ID`. They have no begin token,
  because the model shifts the target.
  """

  source_tokens: np.ndarray
  source_segments: np.ndarray
  source_positions: np.ndarray
  target_tokens: np.ndarray
  target_segments: np.ndarray
  target_positions: np.ndarray
