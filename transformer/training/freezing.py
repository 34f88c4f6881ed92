"""Parameters that training does not change, chosen by a pattern over their names."""

import re
from typing import Any

import jax

from transformer.errors import UserError


def frozen_mask(pattern: str, params: Any):
  """Returns, for each parameter, whether it is frozen; `pattern` is `TrainConfig.freeze`."""
  def matches(path, _):
    return bool(pattern) and re.search(pattern, _name(path)) is not None
  return jax.tree_util.tree_map_with_path(matches, params)


def hold_frozen(pattern: str, params: Any):
  """Returns the parameters; the frozen ones have no gradient, so none is computed for them."""
  return jax.tree.map(lambda leaf, frozen: jax.lax.stop_gradient(leaf) if frozen else leaf,
                      params, frozen_mask(pattern, params))


def describe_frozen(pattern: str, params: Any) -> str:
  """Returns a line that tells which parameters are frozen, and how many numbers they hold.

  Raises:
    UserError: the pattern matches no parameter, or all of them.
  """
  leaves = jax.tree_util.tree_leaves_with_path(params)
  frozen = jax.tree.leaves(frozen_mask(pattern, params))
  if len(set(frozen)) != 2:
    names = ', '.join(sorted({_name(path[:1]) for path, _ in leaves}))
    raise UserError(f'train.freeze={pattern!r} must match some parameters and leave others; it '
                    f'matches {"all" if all(frozen) else "none"}; their names begin with {names}')
  parts = {}
  for (path, _), is_frozen in zip(leaves, frozen, strict=True):
    parts.setdefault(_name(path[:1]), []).append(is_frozen)
  told = [name if all(each) else f'{name} in part' for name, each in parts.items() if any(each)]
  count = sum(leaf.size for (_, leaf), each in zip(leaves, frozen, strict=True) if each)
  whole = sum(leaf.size for _, leaf in leaves)
  return f'train.freeze keeps {count:,} of {whole:,} parameters: {", ".join(told)}'


def _name(path) -> str:
  return '/'.join(str(key.key) for key in path)
