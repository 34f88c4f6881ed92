"""The flags of XLA are set, and only those that it knows."""

import jax
import pytest

from transformer.system import xla_flags


@pytest.mark.parametrize(('before', 'after'), [
    ('', []), ('--a=1 --b', ['--a=1', '--b']),
    ('--xla_gpu_deterministic_ops=false --a=1 --xla_gpu_autotune_level=4', ['--a=1'])])
def test_reproducible_flags_join_others_and_replace_contrary_ones(before, after):
  wanted = ['--xla_gpu_deterministic_ops=true', '--xla_gpu_autotune_level=0']
  environment = {'XLA_FLAGS': before}
  xla_flags.set_reproducible_flags(environment)
  assert environment['XLA_FLAGS'].split() == after + wanted
  xla_flags.set_reproducible_flags(environment)
  assert environment['XLA_FLAGS'].split() == after + wanted


def test_a_flag_that_jaxlib_does_not_know_is_left_out(monkeypatch):
  warnings = []
  monkeypatch.setattr(xla_flags.logging, 'warning',
                      lambda text, *each: warnings.append(text % each))
  monkeypatch.setattr(xla_flags, 'REPRODUCIBLE_FLAGS', ('--xla_gpu_autotune_level=0', '--xla_no=1'))
  environment = {}
  xla_flags.set_reproducible_flags(environment)
  assert environment['XLA_FLAGS'] == '--xla_gpu_autotune_level=0'
  warning, = warnings
  assert 'knows only --xla_gpu_autotune_level=0' in warning


@pytest.mark.parametrize('name', [
    'xla_gpu_autotune_level', 'xla_gpu_deterministic_ops', 'xla_cpu_use_fusion_emitters',
    'xla_cpu_experimental_ynn_fusion_type', 'xla_cpu_experimental', 'xla_no'])
def test_knows_flag_agrees_with_xla(name):
  with pytest.raises(RuntimeError) as refusal:  # No flag has this value.
    jax.jit(lambda: 0).lower().compile({name: '?'})
  assert xla_flags.knows_flag(f'--{name}') == ('No such compile option' not in str(refusal.value))
