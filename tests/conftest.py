"""Strict modes for every test: what JAX would let pass quietly is an error here."""

import jax

jax.config.update('jax_num_cpu_devices', 4)
jax.config.update('jax_numpy_rank_promotion', 'raise')
jax.config.update('jax_debug_nans', False)
