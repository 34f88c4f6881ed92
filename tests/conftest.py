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


@pytest.fixture(scope='session')
def write_wmt14():
  """(folder, split=German and English pairs, …) -> prepares them as `wmt14_translate/de-en`.

  TFDS's own builder of WMT 2014 writes them instead of the download.
  """
  import tensorflow_datasets as tfds  # Whoever tests no set need not wait for it.

  from transformer.data import tfds_sets

  def write(folder, **splits):
    cls = tfds.builder_cls('wmt14_translate')
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(cls, '_split_generators', lambda self, _: {
          split: self._generate_examples(pairs) for split, pairs in splits.items()})
      patch.setattr(cls, '_generate_examples', lambda self, pairs: enumerate(
          {'de': de, 'en': en} for de, en in pairs))
      tfds_sets.prepare('wmt14_translate/de-en', str(folder))

  return write
