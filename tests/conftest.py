"""Strict modes for every test: what JAX would let pass quietly is an error here."""

import os
import tempfile

import jax
import pytest

jax.config.update('jax_num_cpu_devices', 4)
jax.config.update('jax_numpy_rank_promotion', 'raise')


@pytest.fixture(scope='session', autouse=True)
def compile_once():
  """Lets tests that build the same program share its compilation."""
  with tempfile.TemporaryDirectory() as folder:
    os.environ['JAX_COMPILATION_CACHE_DIR'] = folder  # For the commands that tests start.
    jax.config.update('jax_compilation_cache_dir', folder)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
    jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)
    yield
    jax.config.update('jax_compilation_cache_dir', None)
    del os.environ['JAX_COMPILATION_CACHE_DIR']
