"""The loss, its gradients and the output of a Transformer in float64: the formulas of tests/model.

Each sentence pair has a separate row, so there is no packing, and masks follow from lengths.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tests.model import formulas
from transformer.model.config import ModelConfig

_BEGIN = 1
_POSITIONS = 1500  # The most source or target positions in one computation.

Pair = tuple[Sequence[int], Sequence[int]]


class Losses(NamedTuple):
  """Sums over the tokens of all pairs, and the number of tokens."""

  loss: float
  nll: float
  tokens: int


def loss_and_gradients(
  config: ModelConfig, params, pairs: Sequence[Pair], smoothing: float
):
  """Returns `Losses` of the label-smoothed cross entropy (section 5.4), and its gradients."""

  def loss(params, source, target):
    log_probs = jax.nn.log_softmax(
      _outputs(config, params, source, target) @ params['target_embedding']['table'].T
    )
    real = target > 0
    nll = -jnp.sum(jnp.take_along_axis(log_probs, target[..., None], -1)[..., 0] * real)
    return (1 - smoothing) * nll - smoothing * jnp.sum(log_probs.mean(-1) * real), nll

  with jax.enable_x64(True):
    params = formulas.exact(params)
    gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))
    sums = None
    for source, target, _ in _padded(pairs):
      found = gradient(params, source, target), (target > 0).sum()
      sums = jax.device_get(
        found if sums is None else jax.tree.map(jnp.add, sums, found)
      )
  ((loss, nll), gradients), tokens = sums
  return Losses(float(loss), float(nll), int(tokens)), gradients


def log_probs_of(
  config: ModelConfig, params, pairs: Sequence[Pair]
) -> list[np.ndarray]:
  """Returns log-probabilities by teacher forcing.

  For each pair an array [2, tokens]: of its target tokens, and of the likeliest tokens.
  """
  table = formulas.exact(params['target_embedding']['table'])
  result = []
  for (_, target), x in zip(pairs, outputs_of(config, params, pairs), strict=True):
    log_probs = np.log(formulas.softmax(x @ table.T))
    result.append(
      np.stack([log_probs[np.arange(len(target)), target], log_probs.max(-1)])
    )
  return result


def outputs_of(config: ModelConfig, params, pairs: Sequence[Pair]) -> list[np.ndarray]:
  """Returns the decoder's output [tokens, D] for each pair."""
  outputs = {}
  with jax.enable_x64(True):
    run, params = jax.jit(functools.partial(_outputs, config)), formulas.exact(params)
    for source, target, numbers in _padded(pairs):
      outputs |= zip(numbers, np.asarray(run(params, source, target)), strict=True)
  return [outputs[number][: len(target)] for number, (_, target) in enumerate(pairs)]


def _outputs(config, params, source_BS, target_BT):
  def of_pair(source_S, target_T):
    inputs_T = jnp.pad(target_T, (1, 0), constant_values=_BEGIN)[:-1]
    return formulas.outputs(
      config, params, source_S, inputs_T, jnp.where(source_S > 0, 0.0, -jnp.inf)
    )

  return jax.vmap(of_pair)(source_BS, target_BT)


def _padded(pairs) -> Iterator[tuple[np.ndarray, np.ndarray, list[int]]]:
  """Yields sources and targets, padded to one size of all, and the numbers of their pairs."""
  lengths = [max(len(pair[side]) for pair in pairs) for side in (0, 1)]
  several = max(1, _POSITIONS // max(lengths))
  for start in range(0, len(pairs), several):
    numbers = list(range(start, min(start + several, len(pairs))))
    sides = [np.zeros((len(numbers), length), np.int64) for length in lengths]
    for side, array in enumerate(sides):
      for row, number in zip(array, numbers, strict=True):
        row[: len(pairs[number][side])] = pairs[number][side]
    yield *sides, numbers
