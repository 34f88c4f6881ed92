"""The connection around a sublayer has its norm where it is told."""

import chex
import jax.numpy as jnp
import pytest

from transformer.ops.residual import residual


@pytest.mark.parametrize(('place', 'wanted'), [
    ('post', [[80.0, 150.0]]), ('pre', [[62.0, 123.0]])])
def test_the_norm_is_after_the_sum_or_before_the_sublayer(place, wanted):
  found = residual(jnp.array([[1.0, 2.0]]), lambda h: h * 6.0 + 1.0, lambda h: h * 10.0, place)
  chex.assert_trees_all_equal(found, jnp.array(wanted))


@pytest.mark.parametrize(('place', 'wanted'), [
    ('post', [[500.0, 930.0]]), ('pre', [[428.0, 849.0]])])
def test_dropout_is_on_what_the_sublayer_gives_and_nothing_else(place, wanted):
  found = residual(jnp.array([[1.0, 2.0]]), lambda h: h * 6.0 + 1.0, lambda h: h * 10.0, place,
                   lambda y: y * 7.0)
  chex.assert_trees_all_equal(found, jnp.array(wanted))


def test_a_place_that_is_none_is_refused():
  with pytest.raises(ValueError, match="place must be one of post, pre; got 'both'"):
    residual(jnp.ones(3), lambda x: x, lambda x: x, 'both')
