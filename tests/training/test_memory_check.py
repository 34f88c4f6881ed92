"""The memory that programs need is known, and a run that does not fit is rejected."""

import math
import os
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from tests.tiny_training import (
  ROWS,
  SOURCE_LENGTH,
  TARGET_LENGTH,
  Settings,
  compiled_once,
)
from tests.training.bigram_model import Bigrams
from transformer.errors import UserError
from transformer.training import memory_check
from transformer.training.config import MeshConfig
from transformer.training.memory_check import compile_within_memory, device_memory
from transformer.training.mesh import make_mesh
from transformer.training.objective import Objective, cross_entropy
from transformer.training.training_setup import (
  CompiledSteps,
  TrainingSetup,
  make_training_setup,
)

LENGTHS, MODEL = (SOURCE_LENGTH, TARGET_LENGTH), Bigrams()


def test_a_training_step_needs_the_state_once_the_batch_and_temporaries():
  setup = make_training_setup(Settings(), MODEL, make_mesh(Settings().mesh, ROWS))
  train_step, eval_step = compiled_once(setup, (ROWS, *LENGTHS))
  batch = 3 * sum(LENGTHS) * 4 * ROWS // 4  # On one of four devices.
  whole, params = (
    4 * sum(leaf.size for leaf in jax.tree.leaves(tree))
    for tree in (setup.abstract_state, setup.abstract_state.params)
  )
  # The new state takes the memory of the old one, and the gradient is temporary.
  assert whole + batch + params < memory_check._bytes_of(train_step) < 5 * whole
  assert params < memory_check._bytes_of(eval_step)
  assert memory_check._bytes_of(SimpleNamespace(memory_analysis=lambda: None)) is None


class Fakes:
  """Fake programs and a fake device, and a record of the log.

  `need` is in kilobytes. The real state of the model is small in comparison.
  """

  def __init__(self, monkeypatch, need, has, search=0):
    self.said, self._need, self._search = [], need, search
    monkeypatch.setattr(memory_check, 'device_memory', lambda: has and 1000 * has)
    monkeypatch.setattr(
      TrainingSetup, 'compile', lambda setup, shape: self._compile(setup)
    )
    monkeypatch.setattr(
      memory_check.logging,
      'info',
      lambda text, *values: self.said.append(text % values),
    )

  def _compile(self, setup):
    if self._need == math.inf:
      raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: out of memory')
    return CompiledSteps(
      setup, program(self._need), program(self._need and self._need // 3)
    )

  def run(self, rows=40, *, objective=None, mesh=None):
    settings = Settings(mesh=mesh or MeshConfig())
    setup = make_training_setup(
      settings, MODEL, make_mesh(settings.mesh, rows), objective
    )
    search = program(self._search)
    compiled = compile_within_memory(setup, (rows, *LENGTHS), 'search', search)
    assert compiled.train_step.need == self._need


def program(need):
  analysis = (
    None
    if need is None
    else SimpleNamespace(
      argument_size_in_bytes=500 * need,
      output_size_in_bytes=100,
      alias_size_in_bytes=100,
      temp_size_in_bytes=500 * need,
    )
  )
  return SimpleNamespace(need=need, memory_analysis=lambda: analysis)


def test_a_batch_may_take_all_of_the_memory_and_not_more(monkeypatch):
  fakes = Fakes(monkeypatch, 40_000, has=40_000)
  fakes.run()
  assert (
    'the training step needs 40.0 MB on a device that has 40.0 MB of memory'
    in fakes.said
  )
  with pytest.raises(
    UserError, match=r'needs 40\.0 MB on a device that has 40\.0 MB of memory'
  ):
    Fakes(monkeypatch, 40_000, has=39_999).run()


@pytest.mark.parametrize('mesh', [MeshConfig(), MeshConfig(data=1, fsdp=4)])
def test_a_search_takes_the_parameters_of_the_state_unless_they_are_split(
  monkeypatch, mesh
):
  fakes = Fakes(monkeypatch, 1, has=10**6)
  fakes.run(mesh=mesh)
  state = make_training_setup(Settings(), MODEL, make_mesh(mesh, 40)).abstract_state
  beside = memory_check._bytes_on_device(
    state._replace(params=None) if mesh.fsdp == 1 else state
  )
  assert f'the search needs {memory_check._size(beside)}' in fakes.said[-1]
  monkeypatch.setattr(memory_check, 'device_memory', lambda: beside)
  fakes.run(mesh=mesh)  # It just fits.
  monkeypatch.setattr(memory_check, 'device_memory', lambda: beside - 1)
  with pytest.raises(UserError, match=r'^the (evaluation|search) needs '):
    fakes.run(mesh=mesh)


@pytest.mark.parametrize(
  ('need', 'search', 'facts'),
  [
    (60_003, 0, ['the training step needs 60.0 MB', 'optimizer.num_microbatches']),
    (math.inf, 0, ['a training step needs more', 'optimizer.num_microbatches']),
    (1, 70_000, ['the search needs 70.0 MB', 'lower decode.batch_size']),
  ],
)
def test_a_run_that_does_not_fit_is_rejected(monkeypatch, need, search, facts):
  with pytest.raises(UserError) as raised:
    Fakes(monkeypatch, need, has=60_002, search=search).run()
  message = str(raised.value)
  assert all(fact in message for fact in facts) and '\n' not in message, message


@pytest.mark.parametrize(('need', 'has'), [(None, 1000), (5000, None)])
def test_unknown_memory_is_logged_and_not_checked(monkeypatch, need, has):
  fakes = Fakes(monkeypatch, need, has)
  fakes.run()
  assert 'not checked' in fakes.said[-1]


def test_frozen_arrays_are_in_memory_already_and_count_once(monkeypatch):
  # 6.25 MB on each device, in a training step of 10.
  frozen = jnp.zeros(25_000_000 // 4 // 4)
  taught = Objective(cross_entropy(0.0).loss, frozen=frozen)
  fakes = Fakes(monkeypatch, 10_000, has=4_000)
  fakes.run(objective=taught)
  with pytest.raises(UserError, match='needs 10'):
    fakes.run()


def fake_devices(monkeypatch, platform, stats, count=2):
  device = SimpleNamespace(platform=platform, memory_stats=lambda: stats)
  monkeypatch.setattr(jax, 'local_devices', lambda: [device] * count)
  monkeypatch.setattr(jax, 'local_device_count', lambda: count)


def test_the_devices_of_a_cpu_share_its_memory(monkeypatch):
  fake_devices(monkeypatch, 'cpu', None)
  pages = {'SC_PHYS_PAGES': 250, 'SC_PAGE_SIZE': 4000}
  monkeypatch.setattr(os, 'sysconf', pages.get)
  assert device_memory() == 500_000


def test_an_accelerator_reports_its_memory(monkeypatch):
  fake_devices(monkeypatch, 'gpu', {'bytes_limit': 1000, 'bytes_in_use': 30})
  assert device_memory() == 970
  for stats in (None, {}):
    fake_devices(monkeypatch, 'gpu', stats)
    assert device_memory() is None
