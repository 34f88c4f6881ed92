"""Links between words, from the attention between their tokens."""

import numpy as np


def link_words(weights_TS: np.ndarray, in_target_TJ: np.ndarray,
               in_source_SI: np.ndarray) -> list[tuple[int, int]]:
  """Links each target word to the source word to which its tokens attend most.

  A word attends by the sum over the tokens of both words. Of equal source words, the first is
  linked. Attention to tokens of no word, such as the end token, counts for nothing.

  Args:
    weights_TS: floats, attention of the target's tokens to the source's, at least 0.
    in_target_TJ: boolean, whether target token t is a part of target word j.
    in_source_SI: boolean, whether source token s is a part of source word i.

  Returns:
    Pairs (i, j) in order. A target word has none if its tokens attend to no source word.
  """
  sums_JI = in_target_TJ.T.astype(float) @ weights_TS @ in_source_SI.astype(float)
  return sorted((int(np.argmax(sums_I)), j) for j, sums_I in enumerate(sums_JI) if sums_I.any())
