"""Sharding rules of the Transformer's parameters, and the type of its matrices in a search."""

from typing import Any

import jax

# The mesh axes that split the axes of a parameter, by the last names of its path. The paths of
# optimizer moments end with the same names, so these rules apply to them too.
SHARDING_RULES = {
  **{(name, 'kernel'): ('fsdp', 'tensor', None) for name in ('query', 'key', 'value')},
  **{(name, 'bias'): ('tensor', None) for name in ('query', 'key', 'value')},
  **{(name, 'kernel'): ('fsdp', 'tensor') for name in ('inner', 'gate')},
  **{
    (name, 'table'): ('tensor', 'fsdp')
    for name in ('source_embedding', 'target_embedding')
  },
  ('inner', 'bias'): ('tensor',),
  ('outer', 'kernel'): ('tensor', 'fsdp'),
  ('output', 'kernel'): ('tensor', None, 'fsdp'),
  ('output',): ('tensor', 'fsdp'),
  ('output_bias',): ('tensor',),
}


def convert_matrices(params, dtype) -> Any:
  """Returns parameters with matrices of `SHARDING_RULES` converted to `dtype`; others unchanged.

  Otherwise, layers convert their matrices at every step of a search.
  """

  def converted(path, leaf):
    names = tuple(key.key for key in path[-2:])
    is_matrix = leaf.ndim > 1 and (
      names in SHARDING_RULES or names[-1:] in SHARDING_RULES
    )
    return leaf.astype(dtype) if is_matrix else leaf

  return jax.tree_util.tree_map_with_path(converted, params)
