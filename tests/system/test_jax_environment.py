"""Compiled programs are kept, and flags of XLA are set, before JAX starts."""

import io
import os
import subprocess
import sys
import time

import chex
import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from tests.tiny_training import VOCABULARY, Settings, make_batch
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.system import jax_environment
from transformer.training.config import TrainConfig
from transformer.training.objective import smoothed
from transformer.training.optimizer import make_optimizer
from transformer.training.step import init_params, init_state, make_train_step


def test_programs_go_to_a_private_folder_of_the_user(tmp_path):
  environment = {'XDG_CACHE_HOME': str(tmp_path / 'cache')}
  jax_environment.keep_compiled_programs(environment)
  folder = environment['JAX_COMPILATION_CACHE_DIR']
  assert folder.startswith(str(tmp_path / 'cache'))
  assert os.stat(folder).st_mode & 0o777 == 0o700  # JAX runs the programs in it.
  assert environment['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] == '0'


@pytest.mark.parametrize('folder', ['', 'elsewhere'])
def test_a_folder_from_the_environment_is_left_unchanged(tmp_path, folder):
  environment = {'XDG_CACHE_HOME': str(tmp_path / 'cache'), 'JAX_COMPILATION_CACHE_DIR': folder,
                 'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '5', 'TF_CPP_MIN_LOG_LEVEL': '0'}
  before = dict(environment)
  jax_environment.keep_compiled_programs(environment)
  assert environment == before
  assert not (tmp_path / 'cache').exists()


@pytest.mark.parametrize('home', ['file', 'file/under', 'forbidden', 'relative'])
def test_an_unusable_folder_gives_a_warning_and_no_cache(tmp_path, monkeypatch, home):
  (tmp_path / 'file').write_text('mine')
  monkeypatch.chdir(tmp_path)
  warnings = []
  monkeypatch.setattr(jax_environment.logging, 'warning',
                      lambda text, *values: warnings.append(text % values))
  if home == 'forbidden':
    monkeypatch.setattr(jax_environment.os, 'access', lambda *_: False)
  environment = {'XDG_CACHE_HOME': home if home == 'relative' else str(tmp_path / home)}
  jax_environment.keep_compiled_programs(environment)
  assert 'JAX_COMPILATION_CACHE_DIR' not in environment
  warning, = warnings
  assert home in warning and 'set JAX_COMPILATION_CACHE_DIR to another folder' in warning
  assert not os.path.exists('relative')


def test_programs_unused_for_long_are_removed(tmp_path):
  environment = {'XDG_CACHE_HOME': str(tmp_path)}
  jax_environment.keep_compiled_programs(environment)
  folder = environment.pop('JAX_COMPILATION_CACHE_DIR')
  days_ago = {'old': (90, 90), 'read': (3, 90), 'written': (90, 3)}
  for name, days in days_ago.items():
    path = os.path.join(folder, name)
    with open(path, 'w') as file:
      file.write('program')
    os.utime(path, tuple(time.time() - day * 86_400 for day in days))
  jax_environment.keep_compiled_programs(environment)
  assert set(os.listdir(folder)) == {'read', 'written'}


def test_processors_of_two_kinds_have_two_folders(tmp_path, monkeypatch):
  folders = set()
  for features in ('flags : sse avx', 'flags : sse', 'flags : sse'):
    monkeypatch.setattr(jax_environment, 'open', lambda *_, features=features, **__: io.StringIO(
        f'processor : 0\n{features}\nprocessor : 1\n'), raising=False)
    environment = {'XDG_CACHE_HOME': str(tmp_path)}
    jax_environment.keep_compiled_programs(environment)
    folders.add(environment['JAX_COMPILATION_CACHE_DIR'])
  assert len(folders) == 2


@pytest.fixture
def empty_folder(tmp_path):
  """A folder to which JAX keeps compiled programs during one test."""
  before = jax.config.jax_compilation_cache_dir
  jax.config.update('jax_compilation_cache_dir', str(tmp_path))
  compilation_cache.reset_cache()
  yield tmp_path
  jax.config.update('jax_compilation_cache_dir', before)
  compilation_cache.reset_cache()


@pytest.mark.long
def test_a_cached_program_gives_the_bits_of_a_compiled_one(empty_folder):
  model = Transformer(ModelConfig(num_layers=1, model_dim=10, ff_dim=14, num_heads=2,
                                  dropout=0.2), VOCABULARY)
  optimizer = make_optimizer(Settings().optimizer, lambda count: jnp.float32(0.01))
  start = init_state(init_params(model, 3), optimizer)
  hits = []
  jax.monitoring.register_event_listener(
      lambda event, **_: hits.append(event) if event.endswith('/cache_hits') else None)

  def run():
    """Makes three updates with a program that is new to this process."""
    hits.clear()
    state = start
    step = jax.jit(make_train_step(model, optimizer, TrainConfig(), objective=smoothed(0.1),
                                   seed=5))
    for number in range(3):
      state, metrics = step(state, make_batch(number))
    return jax.device_get((state, metrics)), len(hits)

  (compiled, no_hits), (kept, some_hits) = run(), run()
  assert no_hits == 0 and some_hits > 0
  chex.assert_trees_all_equal(compiled, kept)


@pytest.mark.long
def test_reproducible_flags_join_others_and_come_after_contrary_ones():
  environment = {'XLA_FLAGS': '--xla_gpu_deterministic_ops=false', 'JAX_PLATFORMS': 'cpu'}
  jax_environment.set_reproducible_flags(environment)
  assert environment['XLA_FLAGS'].split() == [
      '--xla_gpu_deterministic_ops=false', '--xla_gpu_deterministic_ops=true',
      '--xla_gpu_autotune_level=0']
  # An unknown flag would end the process.
  subprocess.run([sys.executable, '-c', 'import jax; jax.devices()'], check=True,
                 env={**os.environ, **environment})
