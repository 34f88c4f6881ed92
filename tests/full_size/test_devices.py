"""Training steps on eight devices equal steps on one, dropout included."""

import numpy as np
import pytest

from tests.full_size.devices import MESHES

pytestmark = pytest.mark.long
ALONE, *OTHERS = (','.join(map(str, sizes)) for sizes in MESHES)


@pytest.fixture(scope='module')
def found(measure):
  return measure('devices', JAX_NUM_CPU_DEVICES='8')


@pytest.mark.parametrize('mesh', OTHERS)
def test_dropout_samples_the_same_bits(found, mesh):
  assert found[mesh]['devices'] > found[ALONE]['devices'] == 1
  assert found[mesh]['bits'] == found[ALONE]['bits']


@pytest.mark.parametrize('mesh', OTHERS)
def test_losses_match_one_device(found, mesh):
  np.testing.assert_allclose(found[mesh]['losses'], found[ALONE]['losses'], rtol=1e-6)
  assert found[ALONE]['losses'][-1] < 0.98 * found[ALONE]['losses'][0]


@pytest.mark.parametrize('mesh', OTHERS)
def test_state_matches_one_device(found, mesh):
  for name, error in found[mesh]['moments'].items():
    # The gradient of a key bias is only rounding, which Adam enlarges to a full step.
    assert name.endswith('key.bias') or error < 3e-3, (name, error)
  rate = found[ALONE]['rate']
  for name, (mean, most) in found[mesh]['params'].items():
    assert name.endswith('key.bias') or mean < 2e-3 * rate, (name, mean / rate)
    assert most < 2 * rate, (name, most / rate)
