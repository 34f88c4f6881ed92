"""Parameters that training does not change, chosen by a pattern over their names."""

import re
from typing import Any

import jax

from transformer.errors import UserError, shown


def frozen_mask(pattern: str, params: Any):
  """Returns, for each parameter, whether it is frozen; `pattern` is `TrainConfig.freeze`."""
  return jax.tree_util.tree_map_with_path(
    lambda path, _: bool(pattern and re.search(pattern, _name(path))), params
  )


def hold_frozen(pattern: str, params: Any):
  """Returns the parameters; the frozen ones have no gradient, so none is computed for them."""
  return jax.tree.map(
    lambda leaf, frozen: jax.lax.stop_gradient(leaf) if frozen else leaf,
    params,
    frozen_mask(pattern, params),
  )


def describe_frozen(pattern: str, params: Any) -> str:
  """Returns a line on how many parameters are frozen, and where; refuses none and all."""
  sizes = {_name(path): leaf.size for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
  frozen = {name: size for name, size in sizes.items() if re.search(pattern, name)}
  names, parts = (
    ', '.join(sorted({name.partition('/')[0] for name in some})) for some in (sizes, frozen)
  )
  if len(frozen) in (0, len(sizes)):
    raise UserError(
      f'train.freeze={shown(pattern)} must match some parameters and leave others; '
      f'it matches {"all" if frozen else "none"}; their names begin with {names}'
    )
  return (
    f'train.freeze keeps {sum(frozen.values()):,} of {sum(sizes.values()):,} parameters, in {parts}'
  )


def _name(path) -> str:
  return jax.tree_util.keystr(path, simple=True, separator='/')
