"""Small computations that some release of JAX or XLA gets wrong, run before a command starts.

A wrong backend raises no error: a run trains, and its figures are wrong. Each case has an exact
answer, and has failed on a release that pip installed. A new case is a row in `CASES`.
"""

import importlib.metadata
import os
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from transformer.errors import UserError, type_and_message
from transformer.system.jax_switches import check_switches


class Case(NamedTuple):
  """A computation with a known answer.

  Attributes:
    source: where the fault is described.
    platform: the JAX backend with the fault, such as `cpu`.
    compute: compiles and runs the case, and returns a number.
    answer: the number that `compute` must return, exactly.
    advice: the command that installs another release.
  """

  source: str
  platform: str
  compute: Callable[[], float]
  answer: float
  advice: str


def _sum_of_squares_of_the_last_row() -> float:
  """Multiplies many short rows by a matrix, then squares and sums each."""
  rows_RD = np.zeros((32_769, 3), np.float32)
  rows_RD[:, 0] = np.arange(len(rows_RD))
  identity_DD = np.eye(3, dtype=np.float32)
  sums_R = jax.jit(jax.vmap(lambda row_D: ((identity_DD @ row_D) ** 2).sum()))(rows_RD)
  return float(sums_R[-1])


CASES = (
    Case('jax-ml/jax#39103', 'cpu', _sum_of_squares_of_the_last_row, 32_768.0 ** 2,
         "pip install 'jax!=0.10.2'"),
)


def check_backend():
  """Refuses a backend that computes one of its `CASES` wrongly, or JAX with other switches.

  Raises:
    UserError: names the release, the case and what to install; or there is no backend as
      JAX_PLATFORMS asks for; or as `check_switches`.
  """
  check_switches()
  try:
    platform = jax.default_backend()
  except (RuntimeError, AssertionError) as error:
    if not (asked := os.environ.get('JAX_PLATFORMS')):
      raise
    raise UserError(f'JAX cannot use JAX_PLATFORMS={asked}: {type_and_message(error)[:200]}; '
                    f'install the JAX for it as the README says, or unset JAX_PLATFORMS') from error
  for case in CASES:
    if case.platform != platform:
      continue
    found = case.compute()
    if found != case.answer:
      raise UserError(
          f'the installed jaxlib {importlib.metadata.version("jaxlib")} computes wrong numbers: '
          f'{case.source} must give {case.answer:.0f} on a {platform}, and gives {found:.0f}; '
          f'install another release: {case.advice}')
