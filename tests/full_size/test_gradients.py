"""A training step and an evaluation at full size equal the formulas in float64.

Errors on two cores with AVX2, relative to the wanted values:

| | full batch, post-norm | 4,224 rows, pre-norm |
| --- | --- | --- |
| losses | 6e-8 | 3e-8 |
| gradients, by norms | 6e-4 | 2e-5 |
| gradients, by largest entries | 1e-3 | 4e-5 |
| updates, by largest entries | 3e-5 | 2e-5 |
"""

import numpy as np
import pytest

pytestmark = pytest.mark.long
# Relative to an array's norm and to its largest entry. Where a ReLU's argument is near 0, rounding
# decides whether its gradient is 0; deeper models have more such arguments.
TOLERANCES = {'full': (2e-3, 5e-3), 'rows': (1e-4, 5e-4)}


@pytest.fixture(scope='module')
def found(measure):
  return measure('gradients')


@pytest.fixture(params=TOLERANCES)
def case(request, found):
  return {**found[request.param], 'tolerances': TOLERANCES[request.param]}


def test_batches_have_the_intended_sizes(found):
  assert found['full']['rows'] == 128 and found['full']['tokens'] > 7900
  assert found['full']['pairs'] > 4 * 128
  assert found['rows']['rows'] * 8 > 2**15 and found['rows']['tokens'] > 30_000


def test_losses_match_the_formulas(case):
  assert case['weights'] == [case['tokens']] * 2
  for name in ('train', 'nll', 'valid'):
    np.testing.assert_allclose(*case[name], rtol=2e-6, err_msg=name)
  assert abs(case['train'][1] - case['nll'][1]) > 1e-4 * case['nll'][1]
  np.testing.assert_allclose(*case['norm'], rtol=1e-4)


def test_gradients_match_the_formulas(case):
  gradients = case['gradients']
  largest = max(wanted for _, wanted, *_ in gradients.values())
  for name, (error, wanted, norm_of_error, norm) in gradients.items():
    if name.endswith(
      'key.bias'
    ):  # It adds a constant to all scores of a query, without effect.
      assert wanted < 1e-15 and error < 1e-8 * largest, name
      continue
    assert norm_of_error < case['tolerances'][0] * norm, (name, norm_of_error / norm)
    assert error < case['tolerances'][1] * wanted, (name, error / wanted)


def test_training_steps_match_adam(case):
  for name, (error, wanted, *_) in case['updates'].items():
    assert error < 1e-3 * wanted and wanted > 1e-5, (name, error / wanted)
