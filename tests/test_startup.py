"""What is compiled is kept for the next process, and what JAX is told before it starts."""

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

from tests.training.conftest import VOCABULARY, Settings, make_batch
from transformer import startup
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.training.optimizer import make_optimizer
from transformer.training.step import init_params, init_state, make_train_step


def test_programs_go_to_a_folder_of_the_users_own(tmp_path):
  environment = {'XDG_CACHE_HOME': str(tmp_path / 'cache')}
  startup.keep_compiled_programs(environment)
  folder = environment['JAX_COMPILATION_CACHE_DIR']
  assert folder.startswith(str(tmp_path / 'cache'))
  assert os.stat(folder).st_mode & 0o777 == 0o700  # JAX runs what lies there.
  assert environment['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] == '0'


@pytest.mark.parametrize('folder', ['', 'elsewhere'])
def test_a_folder_that_is_given_is_left_to_the_user(tmp_path, folder):
  environment = {'XDG_CACHE_HOME': str(tmp_path / 'cache'), 'JAX_COMPILATION_CACHE_DIR': folder,
                 'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '5', 'TF_CPP_MIN_LOG_LEVEL': '0'}
  before = dict(environment)
  startup.keep_compiled_programs(environment)
  assert environment == before
  assert not (tmp_path / 'cache').exists()


@pytest.mark.parametrize('home', ['file', 'file/under', 'forbidden', 'relative'])
def test_a_folder_that_cannot_be_used_is_warned_of_and_done_without(tmp_path, monkeypatch, home):
  (tmp_path / 'file').write_text('mine')
  monkeypatch.chdir(tmp_path)
  warnings = []
  monkeypatch.setattr(startup.logging, 'warning', lambda text, *each: warnings.append(text % each))
  if home == 'forbidden':
    monkeypatch.setattr(startup.os, 'access', lambda *each: False)
  environment = {'XDG_CACHE_HOME': home if home == 'relative' else str(tmp_path / home)}
  startup.keep_compiled_programs(environment)
  assert 'JAX_COMPILATION_CACHE_DIR' not in environment
  warning, = warnings
  assert home in warning and 'set JAX_COMPILATION_CACHE_DIR to another folder' in warning
  assert not os.path.exists('relative')


def test_what_nobody_has_read_for_long_is_removed(tmp_path):
  environment = {'XDG_CACHE_HOME': str(tmp_path)}
  startup.keep_compiled_programs(environment)
  folder = environment.pop('JAX_COMPILATION_CACHE_DIR')
  days_ago = {'old': (90, 90), 'read': (3, 90), 'written': (90, 3)}
  for name, days in days_ago.items():
    path = os.path.join(folder, name)
    with open(path, 'w') as file:
      file.write('program')
    os.utime(path, tuple(time.time() - each * 86_400 for each in days))
  startup.keep_compiled_programs(environment)
  assert set(os.listdir(folder)) == {'read', 'written'}


def test_machines_of_two_kinds_do_not_run_each_others_programs(tmp_path, monkeypatch):
  folders = set()
  for features in ('flags : sse avx', 'flags : sse', 'flags : sse'):
    monkeypatch.setattr(startup, 'open', lambda *_, features=features, **__: io.StringIO(
        f'processor : 0\n{features}\nprocessor : 1\n'), raising=False)
    environment = {'XDG_CACHE_HOME': str(tmp_path)}
    startup.keep_compiled_programs(environment)
    folders.add(environment['JAX_COMPILATION_CACHE_DIR'])
  assert len(folders) == 2


@pytest.mark.parametrize(('before', 'after'), [
    ('', []), ('--a=1 --b', ['--a=1', '--b']),
    ('--xla_gpu_deterministic_ops=false --a=1 --xla_gpu_autotune_level=4', ['--a=1'])])
def test_reproducible_flags_join_others_and_replace_contrary_ones(before, after):
  wanted = ['--xla_gpu_deterministic_ops=true', '--xla_gpu_autotune_level=0']
  environment = {'XLA_FLAGS': before}
  startup.be_reproducible(environment)
  assert environment['XLA_FLAGS'].split() == after + wanted
  startup.be_reproducible(environment)
  assert environment['XLA_FLAGS'].split() == after + wanted


def test_a_flag_that_jaxlib_does_not_know_is_left_out(monkeypatch):
  warnings = []
  monkeypatch.setattr(startup.logging, 'warning', lambda text, *each: warnings.append(text % each))
  monkeypatch.setattr(startup, 'REPRODUCIBLE_FLAGS', ('--xla_gpu_autotune_level=0', '--xla_no=1'))
  environment = {}
  startup.be_reproducible(environment)
  assert environment['XLA_FLAGS'] == '--xla_gpu_autotune_level=0'
  warning, = warnings
  assert 'knows only --xla_gpu_autotune_level=0' in warning


@pytest.mark.parametrize('name', [
    'xla_gpu_autotune_level', 'xla_gpu_deterministic_ops', 'xla_cpu_use_fusion_emitters',
    'xla_cpu_experimental_ynn_fusion_type', 'xla_cpu_experimental', 'xla_no'])
def test_the_flags_that_are_known_are_those_that_xla_takes(name):
  with pytest.raises(RuntimeError) as refusal:  # No flag takes this value.
    jax.jit(lambda: 0).lower().compile({name: '?'})
  assert startup.knows_flag(f'--{name}') == ('No such compile option' not in str(refusal.value))


def test_a_program_that_was_kept_gives_the_bits_of_one_that_was_compiled(tmp_path):
  model = Transformer(ModelConfig(num_layers=1, model_dim=10, ff_dim=14, num_heads=2,
                                  dropout=0.2), VOCABULARY)
  optimizer = make_optimizer(Settings().optimizer, lambda count: jnp.float32(0.01))
  start = init_state(init_params(model, 3), optimizer)
  hits = []
  jax.monitoring.register_event_listener(
      lambda event, **_: hits.append(event) if event.endswith('/cache_hits') else None)

  def run():
    """Three updates by a program that this process does not have."""
    hits.clear()
    state = start
    step = jax.jit(make_train_step(model, optimizer, label_smoothing=0.1, seed=5))
    for number in range(3):
      state, metrics = step(state, make_batch(number))
    return jax.device_get((state, metrics)), len(hits)

  before = jax.config.jax_compilation_cache_dir
  try:
    jax.config.update('jax_compilation_cache_dir', str(tmp_path))
    compilation_cache.reset_cache()
    (compiled, no_hits), (kept, some_hits) = run(), run()
  finally:
    jax.config.update('jax_compilation_cache_dir', before)
    compilation_cache.reset_cache()
  assert no_hits == 0 and some_hits > 0
  chex.assert_trees_all_equal(compiled, kept)


def test_what_draws_is_not_imported_before_there_is_something_to_draw():
  code = 'import sys, transformer.training_run; print("matplotlib" in sys.modules)'
  done = subprocess.run([sys.executable, '-c', code], text=True, capture_output=True)
  assert done.stdout == 'False\n', done.stderr
