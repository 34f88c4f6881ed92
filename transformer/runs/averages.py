"""Keeps the mean of several checkpoints for the next start, since reading them takes longer."""

import hashlib
import io
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from transformer.system import kept_files


def keep_mean(mean: Callable[[], Any], like: Any, seals: Sequence[bytes]) -> Any:
  """Returns a mean of checkpoints, which an earlier process may have computed.

  Args:
    mean: returns the mean, a pytree of arrays.
    like: `jax.ShapeDtypeStruct` for each array, with its sharding.
    seals: all that the mean depends on, such as the digests of the checkpoints' files.

  Returns:
    The mean, the same bits whether it was kept or not.
  """
  folder = kept_files.folder()
  if folder is None or jax.process_count() > 1:
    return mean()
  path = folder / f'mean-{hashlib.sha256(repr(seals).encode()).hexdigest()}'
  leaves, tree = jax.tree.flatten(like)
  content = kept_files.read(path)
  if content is not None:
    with np.load(io.BytesIO(content), allow_pickle=False) as kept:
      arrays = [kept[name] for name in kept.files]
    # Arrays of other shapes cannot belong to the run, and `mean` then tells why.
    if [(each.shape, each.dtype) for each in arrays] == [(leaf.shape, leaf.dtype)
                                                         for leaf in leaves]:
      return tree.unflatten(jax.device_put(array, leaf.sharding)
                            for array, leaf in zip(arrays, leaves, strict=True))
  found = mean()
  buffer = io.BytesIO()
  np.savez(buffer, *jax.device_get(jax.tree.leaves(found)))
  kept_files.write(path, buffer.getvalue())
  return found
