"""Strict modes for every test: what JAX would let pass quietly is an error here."""

import os
import tempfile

import jax
import pytest

from transformer.startup import knows_flag

jax.config.update('jax_num_cpu_devices', 4)
jax.config.update('jax_disable_most_optimizations', True)
jax.config.update('jax_numpy_rank_promotion', 'raise')


def pytest_addoption(parser):
  """Defines `--all`."""
  parser.addoption('--all', action='store_true',
                   help='Run the tests that take long, too. So does naming files or tests.')


def pytest_configure(config):
  """Makes compilation cheap, since most of the time goes into compiling what runs for a moment.

  Tests that build the same program share it, in whatever process they are, and the commands that
  they start are compiled with as little care as they. The quickstart is compiled as everybody's
  runs are. CTranslate2 is held to the same numbers on every processor.
  """
  if not hasattr(config, 'workerinput'):  # pytest-xdist starts the workers from here.
    config.option.all |= config.args_source is pytest.Config.ArgsSource.ARGS
    compiled = tempfile.TemporaryDirectory()
    config.add_cleanup(compiled.cleanup)
    os.environ['JAX_COMPILATION_CACHE_DIR'] = compiled.name
    # Its exponential function is less exact by AVX2 than by other instructions, or by none.
    os.environ['CT2_FORCE_CPU_ISA'] = 'GENERIC'
    os.environ['JAX_DISABLE_MOST_OPTIMIZATIONS'] = 'True'
    # Halves it once more: the first in jaxlib 0.10, the second from 0.11 on.
    quick = [flag for flag in ('--xla_cpu_use_fusion_emitters=false',
                               '--xla_cpu_opt_preset=FAST_COMPILE')
             if knows_flag(flag.partition('=')[0])]
    os.environ['XLA_FLAGS'] = ' '.join([os.environ.get('XLA_FLAGS', ''), *quick])
  jax.config.update('jax_compilation_cache_dir', os.environ['JAX_COMPILATION_CACHE_DIR'])
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)


def pytest_collection_modifyitems(config, items):
  """Leaves out what takes long, and begins with the files that take longest.

  Otherwise one core would wait for another at the end.
  """
  if not config.option.all:
    long = [item for item in items if item.get_closest_marker('long')]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if not item.get_closest_marker('long')]
  first = ('test_several_processes.py', 'test_resume.py', 'test_devices.py', 'test_mesh.py',
           'test_kill.py', 'test_disk.py', 'test_readme.py', 'test_attention_browser.py',
           'test_fit_memory.py', 'test_long_run.py', 'test_eval.py', 'test_loop.py',
           'test_preemption.py', 'test_step.py', 'test_transformer.py',
           'test_ctranslate2_format.py', 'test_translate.py')
  items.sort(key=lambda item: first.index(item.path.name) if item.path.name in first
             else len(first))


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
