"""The model of the tests of the loop, which does not depend on what a model computes."""

import pytest

from tests.training.bigram_model import Bigrams


@pytest.fixture(scope='session')
def model() -> Bigrams:
  """Returns a model with dropout, so that randomness must resume too."""
  return Bigrams()
