"""Training steps on eight devices in every mesh match one device; each holds and sends its part."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.training.eight_devices import EVALUATED, MESHES

pytestmark = pytest.mark.long
ALONE = (1, 1, 1)


@pytest.fixture(scope='module')
def results():
  """Returns the results of `eight_devices`, by (data, fsdp, tensor)."""
  done = subprocess.run(
    [sys.executable, '-m', 'tests.training.eight_devices'],
    cwd=Path(__file__).parents[2],
    env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  return {
    name if name == 'elastic' else tuple(map(int, name.split(','))): value
    for name, value in json.loads(done.stdout).items()
  }


def sent(mesh, kind):
  return [size for name, size in mesh['sent'] if name == kind]


@pytest.mark.parametrize('sizes', MESHES)
def test_training_steps_on_every_mesh_match_one_device_even_with_dropout(
  results, sizes
):
  np.testing.assert_allclose(
    results[sizes]['losses'], results[ALONE]['losses'], rtol=2e-6
  )


@pytest.mark.parametrize('sizes', EVALUATED[1:])
def test_an_evaluation_on_a_mesh_matches_one_device(results, sizes):
  np.testing.assert_allclose(
    results[sizes]['valid'], results[ALONE]['valid'], rtol=2e-6
  )


@pytest.mark.parametrize('sizes', MESHES)
def test_each_device_holds_its_fraction_of_the_state(results, sizes):
  _, fsdp, tensor = sizes
  whole, mesh = results[ALONE]['held'], results[sizes]
  # Norms and most biases, a fortieth of the model, are on every device.
  assert whole / fsdp / tensor <= mesh['held'] <= whole / fsdp / tensor + whole / 40
  # The arguments of the compiled program are the state and a batch's rows.
  assert 0 <= mesh['arguments'] - mesh['held'] < 3000


@pytest.mark.parametrize('sizes', MESHES)
def test_devices_communicate_only_parameters_and_gradients(results, sizes):
  _, fsdp, tensor = sizes
  mesh = results[sizes]
  assert {kind for kind, _ in mesh['sent']} <= {'all-gather', 'all-reduce'}
  # A training step gathers each parameter that fsdp splits once, and nothing else.
  assert sorted(sent(mesh, 'all-gather')) == (
    sorted(size // tensor for size in mesh['split']) if fsdp > 1 else []
  )
  reduced, parameters = sum(sent(mesh, 'all-reduce')), results[ALONE]['held'] / 3
  if tensor == 1:  # The gradients and a few sums.
    assert parameters <= reduced < 1.1 * parameters


def test_a_run_that_resumes_on_fewer_devices_sees_the_same_batches(results):
  whole, parts = results['elastic']['whole'], results['elastic']['parts']
  assert [list(row) for row in parts] == [list(row) for row in whole] and len(
    whole
  ) == 6
  for row, other in zip(parts, whole, strict=True):
    np.testing.assert_allclose(list(row.values()), list(other.values()), rtol=5e-5)
