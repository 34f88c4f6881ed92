"""The norm of a residual connection is where `norm` says."""

import chex
import jax.numpy as jnp
import pytest

from transformer.ops.residual import residual


@pytest.mark.parametrize(('norm', 'wanted'), [
    ('post', [[80.0, 150.0]]), ('pre', [[62.0, 123.0]])])
def test_the_norm_is_after_the_sum_or_before_the_sublayer(norm, wanted):
  found = residual(jnp.array([[1.0, 2.0]]), lambda h: h * 6.0 + 1.0, lambda h: h * 10.0, norm)
  chex.assert_trees_all_equal(found, jnp.array(wanted))


@pytest.mark.parametrize(('norm', 'wanted'), [
    ('post', [[500.0, 930.0]]), ('pre', [[428.0, 849.0]])])
def test_dropout_is_on_the_output_of_the_sublayer_alone(norm, wanted):
  found = residual(jnp.array([[1.0, 2.0]]), lambda h: h * 6.0 + 1.0, lambda h: h * 10.0, norm,
                   lambda y: y * 7.0)
  chex.assert_trees_all_equal(found, jnp.array(wanted))


def test_an_unknown_norm_is_refused():
  with pytest.raises(ValueError, match="norm must be post or pre; got 'both'"):
    residual(jnp.ones(3), lambda x: x, lambda x: x, 'both')
