"""Strict modes of JAX for every test, and fixtures that several packages share."""

import os
import tempfile

import hypothesis
import jax
import jaxlib
import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

# Fixtures that several packages share.
pytest_plugins = ('tests.doc_plugins', 'tests.command_fixtures', 'tests.tiny_training')

# The same examples in every run; tests/robustness/test_fuzz.py searches for new ones.
hypothesis.settings.register_profile('same', derandomize=True, deadline=None)
hypothesis.settings.load_profile('same')
if 'FUZZ_EXAMPLES' not in os.environ:
  # Hypothesis 6.155 to 6.170 also samples constants from the loaded modules, which depend on the
  # earlier tests. No setting disables this.
  providers._get_local_constants = Constants
jax.config.update('jax_num_cpu_devices', 4)
jax.config.update('jax_disable_most_optimizations', True)
jax.config.update('jax_numpy_rank_promotion', 'raise')


def pytest_addoption(parser):
  """Defines `--all`."""
  parser.addoption(
    '--all',
    action='store_true',
    help='Also run tests marked `long`. They also run when you name test files or tests '
    'explicitly.',
  )


def pytest_configure(config):
  """Compiles with few optimizations, since tests take longer to compile than to run.

  Tests in all processes share a cache of compiled programs. JAX may read a program there while
  another process writes it. It then warns and compiles, which is not a failure. Commands that tests
  start are compiled in the same way, except the quickstart. CTranslate2 uses the same kernels on
  every CPU.
  """
  half_written = 'ignore:Error reading persistent compilation cache entry:UserWarning'
  config.addinivalue_line('filterwarnings', half_written)
  if hasattr(config, 'workerinput'):
    config.option.all = config.workerinput['all']
  else:  # pytest-xdist starts the workers from here.
    config.option.all |= config.args_source is pytest.Config.ArgsSource.ARGS
    compiled = tempfile.TemporaryDirectory()
    config.add_cleanup(compiled.cleanup)
    os.environ['JAX_COMPILATION_CACHE_DIR'] = compiled.name
    os.environ['PYTHONWARNINGS'] = half_written
    # Commands set this, so that XLA does not log cached programs, but only if it is unset, and
    # importing JAX here has set it.
    os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
    # CTranslate2's exponential function is less accurate with AVX2.
    os.environ['CT2_FORCE_CPU_ISA'] = 'GENERIC'
    os.environ['JAX_DISABLE_MOST_OPTIMIZATIONS'] = 'True'
    # Halves the compile time.
    quick = (
      '--xla_cpu_use_fusion_emitters=false'
      if jaxlib.__version__.startswith('0.10.')
      else '--xla_cpu_opt_preset=FAST_COMPILE'
    )
    os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {quick}'
  jax.config.update(
    'jax_compilation_cache_dir', os.environ['JAX_COMPILATION_CACHE_DIR']
  )
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)


@pytest.hookimpl(optionalhook=True)  # A hook of pytest-xdist.
def pytest_configure_node(node):
  """Passes `--all` to a worker, which does not see whether files or tests were named."""
  node.workerinput['all'] = node.config.option.all


def pytest_collection_modifyitems(config, items):
  """Deselects long tests unless `--all` is given, and starts with the slowest files.

  In another order, one core would wait for another at the end.
  """
  if not config.option.all:
    long = [item for item in items if _is_long(item)]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if not _is_long(item)]
  first = (
    'test_quickstart.py',
    'test_multiprocess.py',
    'test_gradients.py',
    'test_resume.py',
    'test_devices.py',
    'test_mesh.py',
    'test_kill.py',
    'test_disk.py',
    'test_doc_commands.py',
    'test_browser.py',
    'test_long_run.py',
    'test_train_loop.py',
    'test_eval.py',
    'test_beam_allocation.py',
    'test_slurm.py',
    'test_translator.py',
    'test_separate_vocabularies.py',
    'test_word_alignment.py',
    'test_step.py',
    'test_transformer.py',
    'test_attention_implementations.py',
    'test_trained_run.py',
    'test_simcut.py',
  )
  items.sort(
    key=lambda item: (
      first.index(item.path.name) if item.path.name in first else len(first)
    )
  )


def _is_long(item):
  """Returns whether a test is marked long; `but` lists parameter sets that are not."""
  mark = item.get_closest_marker('long')
  return mark is not None and (
    not hasattr(item, 'callspec') or item.callspec.id not in mark.kwargs.get('but', ())
  )


@pytest.fixture(scope='session')
def write_wmt14():
  """Returns a function (folder, split=pairs, …) that prepares `wmt14_translate/de-en`.

  TFDS's own builder of WMT 2014 writes these German-English pairs instead of downloading data.
  """
  import tensorflow_datasets as tfds  # The import is slow, and few tests need it.
  import tensorflow_datasets.translate  # Registers the dataset.

  def write(folder, **splits):
    cls = tfds.builder_cls('wmt14_translate')
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(
        cls,
        '_split_generators',
        lambda self, _: {
          split: self._generate_examples(pairs) for split, pairs in splits.items()
        },
      )
      patch.setattr(
        cls,
        '_generate_examples',
        lambda self, pairs: enumerate({'de': de, 'en': en} for de, en in pairs),
      )
      cls(config='de-en', data_dir=str(folder)).download_and_prepare(
        file_format='array_record',
        download_config=tfds.download.DownloadConfig(try_download_gcs=False),
      )

  return write
