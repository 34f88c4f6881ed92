"""Embeddings for another vocabulary, made of the rows of an earlier one."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def spelt_params(
  params: Mapping[str, Any], source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]
) -> dict[str, Any]:
  """Returns the parameters of a Transformer whose tables have a row for each new piece.

  A row is the mean of the rows of the earlier pieces that spell the new one (Gee et al., 2022,
  "Fast Vocabulary Transfer for Language Model Compression"). So a piece that stays keeps its
  row bit for bit, and a new piece starts at the mean of the pieces that it replaces. The biases of
  the logits are made in the same way.

  Args:
    params: parameters of a `Transformer` with the earlier vocabularies.
    source: for each new source piece, the ids of the earlier pieces that spell it.
    target: likewise of the target's. A table that the languages share is the target's.
  """
  spelt = {
    'source_embedding': source,
    'target_embedding': target,
    'output': target,
    'output_bias': target,
  }

  def rows(table_ND, pieces):
    table_ND = np.asarray(table_ND)
    return np.stack(
      [table_ND[ids[0]] if len(ids) == 1 else table_ND[list(ids)].mean(axis=0) for ids in pieces]
    )

  return dict(params) | {
    name: {'table': rows(params[name]['table'], pieces)}
    if isinstance(params[name], Mapping)
    else rows(params[name], pieces)
    for name, pieces in spelt.items()
    if name in params
  }
