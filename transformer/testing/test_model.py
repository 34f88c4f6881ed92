"""Runs all checks on the model of the environment variable TESTED_MODEL; default: the Transformer.

TESTED_MODEL is MODULE:CLASS, or settings of `config.model` as JSON.
"""

import contextlib
import os

import jax
import pytest

from transformer.testing import model_under_test
from transformer.testing.checks import CHECKS

with contextlib.suppress(RuntimeError):  # JAX is already initialized.
  jax.config.update('jax_num_cpu_devices', 8)


@pytest.fixture(scope='session')
def tested() -> model_under_test.ModelUnderTest:
  """Returns the model with small sizes and random parameters."""
  return model_under_test.load(os.environ.get('TESTED_MODEL', '{}'))


@pytest.mark.parametrize('check', CHECKS.values(), ids=CHECKS)
def test_model(tested, check):
  try:
    check(tested)
  except model_under_test.CheckFailed as error:
    pytest.fail(str(error), pytrace=False)
