"""What passes from data to model: a batch of packed rows, and four reserved ids."""

from typing import NamedTuple

import numpy as np

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3


class Batch(NamedTuple):
  """Rows of several sentence pairs each; every array is int32 [row, length].

  Pair number i of a row has segment i, from 1, on both sides; segment 0 is
  padding. Positions count from 0 within each sentence. Sentences end with
  `EOS_ID`; there is no begin token, because a shifted target supplies it.
  """

  source_tokens: np.ndarray
  source_segments: np.ndarray
  source_positions: np.ndarray
  target_tokens: np.ndarray
  target_segments: np.ndarray
  target_positions: np.ndarray
