"""The costs of a training step, with this machine's devices instead of TPUs."""

import importlib.metadata
import types

import jax
import pytest

from benchmarks.compiled import training_step
from benchmarks.tpu_costs import estimate
from transformer.config import Config
from transformer.errors import UserError
from transformer.model.flops import transformer_flops_per_token
from transformer.runs import run_directory

SETTINGS = Config.from_dict(
  {
    'model': {'num_layers': 1, 'model_dim': 12, 'ff_dim': 16, 'num_heads': 2},
    'data': {'vocabulary_size': 271, 'max_length': 7},
    'train': {'tokens_per_batch': 8 * 7},
    'mesh': {'data': 2, 'fsdp': 2},
  }
)


@pytest.fixture(autouse=True)
def chips(monkeypatch):
  """Adds memory, a clock and links to this machine's devices."""
  monkeypatch.setitem(
    estimate.CHIPS, 'cpu', estimate.Chip(memory=1e6, clock=1e9, link_bandwidth=1e3)
  )
  monkeypatch.setattr(estimate, 'peak_flops', lambda kind: {'cpu': 1e6}[kind])
  monkeypatch.setattr(
    importlib.metadata, 'version', lambda name: {'libtpu': '0.0'}[name]
  )


@pytest.mark.long
def test_a_training_step_on_four_devices():
  costs = estimate.training_step_cost(SETTINGS, jax.devices())
  assert costs['mesh'] == {'data': 2, 'fsdp': 2, 'tensor': 1}
  assert (costs['chips'], costs['rows'], costs['max_length']) == (4, 8, 7)
  assert costs['commit'] == run_directory.commit()
  memory = costs['memory']
  assert memory['total'] == sum(
    size for name, size in memory.items() if name != 'total'
  )
  # Parameters and two moments; of split ones, a device holds half.
  assert 12 * 271 * 4 * 3 / 2 < memory['arguments'] < memory['total'] < 1e6
  assert estimate.fits(costs)
  gathered, reduced = (
    costs['collectives']['all-gather'],
    costs['collectives']['all-reduce'],
  )
  assert gathered['count'] > 0 and reduced['bytes'] > 271 * 12 * 4
  communication = sum(kind['sent'] for kind in costs['collectives'].values()) / 1e3
  flops = sum(transformer_flops_per_token(SETTINGS.model, 271)) * 56 / 4
  assert costs['flops']['model'] == flops and costs['flops']['xla'] > flops / 2
  # The compiler for CPUs reports no cycles.
  assert costs['seconds'] == {'compute': 0.0, 'communication': communication}
  assert costs['utilization'] == pytest.approx(flops / 1e6 / communication)


@pytest.mark.parametrize(
  ('message', 'fits'),
  [('RESOURCE_EXHAUSTED: of hbm', False), ('INTERNAL: of no use', None)],
)
def test_a_compiler_out_of_memory_returns_a_result_and_other_errors_are_raised(
  monkeypatch, message, fits
):
  def fail(*_):
    raise jax.errors.JaxRuntimeError(message)

  monkeypatch.setattr(
    training_step, 'make_training_setup', lambda *_: types.SimpleNamespace(lower=fail)
  )
  if fits is None:
    with pytest.raises(jax.errors.JaxRuntimeError, match='of no use'):
      estimate.training_step_cost(SETTINGS, jax.devices())
  else:
    assert estimate.fits(estimate.training_step_cost(SETTINGS, jax.devices())) is fits


def test_unknown_slices_and_a_missing_compiler_are_rejected(monkeypatch):
  assert (estimate.TOPOLOGIES['v5e:16x16'], estimate.TOPOLOGIES['v5p:8x8x16']) == (
    256,
    1024,
  )
  with pytest.raises(UserError, match=r"one of v5e:2x2, .*v5p:8x8x16; got 'v5e:16x32'"):
    estimate.devices_of('v5e:16x32')
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(
    UserError, match=r'not installed; install it with: pip install "jax\[tpu\]"'
  ):
    estimate.devices_of('v5e:4x4')
