"""The costs of an update, with this machine's own devices instead of TPUs."""

import importlib.metadata

import jax
import pytest

from transformer.config import Config
from transformer.errors import UserError
from transformer.model.flops import train_flops
from transformer.runs import run_directory
from transformer.tools.tpu_costs import estimate
from transformer.training.config import MeshConfig

SETTINGS = Config.from_dict({
    'model': {'num_layers': 1, 'model_dim': 12, 'ff_dim': 16, 'num_heads': 2},
    'data': {'vocabulary_size': 271, 'max_length': 7},
    'train': {'tokens_per_batch': 8 * 7}, 'mesh': {'data': 2, 'fsdp': 2}})


@pytest.fixture(autouse=True)
def chips(monkeypatch):
  """Gives this machine's devices a memory, a clock and links."""
  monkeypatch.setitem(estimate.CHIPS, 'cpu', estimate.Chip(memory=1e6, clock=1e9, wire=1e3))
  monkeypatch.setattr(estimate, 'peak_flops', lambda kind: {'cpu': 1e6}[kind])
  monkeypatch.setattr(importlib.metadata, 'version', lambda name: {'libtpu': '0.0'}[name])


@pytest.mark.long
def test_an_update_on_four_devices():
  found = estimate.update_cost(SETTINGS, jax.devices())
  assert found['mesh'] == {'data': 2, 'fsdp': 2, 'tensor': 1}
  assert (found['chips'], found['rows'], found['max_length']) == (4, 8, 7)
  assert found['commit'] == run_directory.commit()
  memory = found['memory']
  assert memory['total'] == sum(size for name, size in memory.items() if name != 'total')
  # Parameters and two moments; of split ones, a device holds half.
  assert 12 * 271 * 4 * 3 / 2 < memory['arguments'] < memory['total'] < 1e6
  assert estimate.fits(found)
  gathered, reduced = found['collectives']['all-gather'], found['collectives']['all-reduce']
  assert gathered['count'] > 0 and reduced['bytes'] > 271 * 12 * 4
  wire = sum(each['sent'] for each in found['collectives'].values()) / 1e3
  flops = sum(train_flops(SETTINGS.model, 271)) * 56 / 4
  assert found['flops']['model'] == flops and found['flops']['xla'] > flops / 2
  # The compiler for CPUs gives no cycles.
  assert found['seconds'] == {'arithmetic': 0.0, 'wire': wire}
  assert found['utilisation'] == pytest.approx(flops / 1e6 / wire)


def test_a_compiler_out_of_memory_gives_a_result(monkeypatch):
  def refuse(*_):
    raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm')

  monkeypatch.setattr(estimate, 'lower_train_step', refuse)
  found = estimate.update_cost(SETTINGS, jax.devices())
  assert found['memory'] is None and not estimate.fits(found)


def test_other_compiler_errors_are_raised(monkeypatch):
  def fail(*_):
    raise jax.errors.JaxRuntimeError('INTERNAL: of no use')

  monkeypatch.setattr(estimate, 'lower_train_step', fail)
  with pytest.raises(jax.errors.JaxRuntimeError, match='of no use'):
    estimate.update_cost(SETTINGS, jax.devices())


def test_the_best_mesh_is_the_quickest_that_fits():
  def result(total, arithmetic, wire):
    return {'device_kind': 'cpu', 'memory': total and {'total': total},
            'seconds': {'arithmetic': arithmetic, 'wire': wire}}

  quick, small, smaller = result(2e6, 1, 1), result(1e6, 2, 3), result(9e5, 1, 5)
  assert estimate.best([quick, result(None, 0, 0), smaller, small]) is small
  assert estimate.best([quick, result(None, 0, 0)]) is None


@pytest.mark.parametrize(('chips', 'rows', 'heads', 'wanted'), [
    (16, 256, 8, [(16, 1, 1), (1, 16, 1), (8, 1, 2), (4, 1, 4), (2, 1, 8)]),
    (16, 100, 8, [(4, 1, 4), (2, 1, 8)]),
    (16, 8, 6, [(8, 1, 2)]),
    (2, 4, 8, [(2, 1, 1), (1, 2, 1), (1, 1, 2)]),
    (64, 64, 2, [(64, 1, 1), (4, 16, 1), (32, 1, 2)]),
    (256, 100, 16, [])])
def test_candidate_meshes_split_rows_and_heads_evenly(chips, rows, heads, wanted):
  found = list(estimate.candidate_meshes(chips, rows, heads))
  assert found == [MeshConfig(*sizes) for sizes in wanted]


def test_unknown_slices_and_a_missing_compiler_are_refused(monkeypatch):
  assert (estimate.TOPOLOGIES['v5e:16x16'], estimate.TOPOLOGIES['v5p:8x8x16']) == (256, 1024)
  with pytest.raises(UserError, match=r"one of v5e:2x2, .*v5p:8x8x16; got 'v5e:16x32'"):
    estimate.devices_of('v5e:16x32')
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(UserError, match=r'not installed; install it with: pip install "jax\[tpu\]"'):
    estimate.devices_of('v5e:4x4')
