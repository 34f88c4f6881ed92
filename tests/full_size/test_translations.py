"""Translations at full size depend neither on their batch nor on the cache."""

import numpy as np
import pytest

pytestmark = pytest.mark.long


@pytest.fixture(scope='module')
def measured(measure):
  return measure('translations')


def test_translations_and_scores_are_bit_for_bit_the_same_in_any_batch(measured):
  batches = measured['in_batches']
  together = batches['together']
  assert len(together) == 64 and len({text for text, *_ in together}) > 60
  assert min(batches['tokens']) < 6 and max(batches['tokens']) > 24
  assert batches['otherwise'] == together
  assert len(batches['alone']) > 9
  assert batches['alone'] == {
    number: together[int(number)] for number in batches['alone']
  }


@pytest.mark.parametrize('beams', ['5', '1'])
def test_search_and_teacher_forcing_find_the_same_log_probabilities(measured, beams):
  search = measured['by_teacher_forcing'][beams]
  assert search['distinct'] > 60 * int(beams)
  assert (
    search['lengths'][0] < 12 and search['lengths'][-1] > 20 and search['ended'] > 0
  )
  searched, scored = np.array(search['searched']), np.array(search['scored'])
  found = np.isfinite(searched)  # A search may end with fewer hypotheses than beams.
  assert found[:, 0].all() and found.sum() == search['hypotheses'] > 60 * int(beams)
  np.testing.assert_allclose(searched[found], scored[found], rtol=1e-6, atol=1e-4)
  np.testing.assert_allclose(searched[:, 0], search['exact'], rtol=1e-6, atol=1e-4)
  if beams == '1':  # Greedy search takes the likeliest token at every position.
    assert search['missed'] < 1e-4
