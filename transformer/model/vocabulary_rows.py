"""Embeddings for another vocabulary, made of the rows of an earlier one."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np


def spelt_params(
  params: Mapping[str, Any],
  source: Sequence[Sequence[int]],
  target: Sequence[Sequence[int]],
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

  def spelt(pieces, table_ND):
    table_ND = np.asarray(table_ND)
    return np.stack([table_ND[list(ids)].mean(axis=0) for ids in pieces])

  tables = {
    'source_embedding': source,
    'target_embedding': target,
    'output': target,
    'output_bias': target,
  }
  new = dict(params)
  for name, pieces in tables.items():
    if name in params:
      new[name] = jax.tree.map(functools.partial(spelt, pieces), params[name])
  return new
