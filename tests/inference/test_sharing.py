"""Batches that devices compute side by side."""

import threading

import jax
import jax.numpy as jnp
import pytest

from transformer.inference.sharing import share

PARAMS = {'scale': jnp.float32(3.0)}


def test_each_batch_is_computed_once_with_parameters_on_one_device():
  found, together = {}, threading.Barrier(3, timeout=60)

  def compute(batch, params):
    if batch >= 4:
      together.wait()  # The first three begin at the same time.
    device, = params['scale'].devices()
    assert batch not in found
    found[batch] = device, float(params['scale'])

  share(range(7), compute, jax.devices()[:3], PARAMS)
  assert sorted(found) == list(range(7))
  assert {found[batch][0] for batch in (4, 5, 6)} == set(jax.devices()[:3])
  assert {scale for _, scale in found.values()} == {3.0}


def test_the_last_batches_begin():
  begun = []
  share(range(5), lambda batch, params: begun.append(batch), jax.devices()[:1], PARAMS)
  assert begun == [4, 3, 2, 1, 0]


def test_no_more_devices_get_parameters_than_there_are_batches():
  used = []
  share([1, 2], lambda batch, params: used.append(params['scale'].devices()), jax.devices(), PARAMS)
  assert len(used) == 2 and set.union(*used) <= set(jax.devices()[:2])
  share([], lambda batch, params: used.append(batch), jax.devices(), PARAMS)
  assert len(used) == 2


def test_an_error_of_a_batch_is_raised_and_the_others_are_left_out():
  begun = []

  def compute(batch, params):
    begun.append(batch)
    raise FloatingPointError(batch)

  with pytest.raises(FloatingPointError):
    share(range(50), compute, jax.devices()[:1], PARAMS)
  assert len(begun) < 50
