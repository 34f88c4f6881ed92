"""Other pairs in a row change the results of a pair only by rounding."""

import numpy as np
import pytest

pytestmark = pytest.mark.long


@pytest.fixture(scope='module')
def found(measure):
  return measure('packing')


@pytest.mark.parametrize('where', ['otherwise', 'alone', 'longer'])
def test_tokens_are_equally_likely_in_any_row(found, where):
  assert found['pairs'] == 128 and found['all'] > 4 * 128 and found['fullest'] > 5
  assert found[where] < 2e-5 < 0.1 * found['spread']


@pytest.mark.parametrize('batch', ['batch', 'alone'])
def test_evaluations_sum_over_the_tokens(found, batch):
  np.testing.assert_allclose(*found['evaluated'][batch], rtol=5e-6)
