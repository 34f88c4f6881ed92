"""The memory that programs need is known, and a run that does not fit is refused."""

import dataclasses
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from tests.tiny_training import (
  ROWS,
  SOURCE_LENGTH,
  TARGET_LENGTH,
  Settings,
  make_task,
)
from transformer.errors import UserError
from transformer.experiment.loop import train
from transformer.training import device_memory, memory_check
from transformer.training.compilation import compile_programs, make_setup
from transformer.training.mesh import make_mesh

LENGTHS = SOURCE_LENGTH, TARGET_LENGTH


@pytest.fixture(scope='module')
def setup(model):
  return make_setup(Settings(), model, make_mesh(Settings().mesh, ROWS))


@pytest.fixture(scope='module')
def programs(model, setup):
  return compile_programs(Settings(), model, setup, (ROWS, *LENGTHS))


def test_a_program_needs_the_state_once_the_batch_and_temporaries(setup, programs):
  state = setup.state
  update, evaluation = memory_check.needs_of(
      state, ('update', programs.train_step, state),
      ('evaluation', programs.eval_step, state.params))
  batch = 3 * sum(LENGTHS) * 4 * ROWS // 4  # On one of four devices.
  whole, params = (4 * sum(leaf.size for leaf in jax.tree.leaves(tree))
                   for tree in (state, state.params))
  assert (update.arguments, update.rest_of_state) == (whole + batch, 0)
  assert update.outputs < whole / 10  # The new state takes the memory of the old one.
  assert update.temporaries > params  # The gradient, at least.
  assert evaluation.rest_of_state == whole - params
  assert params <= evaluation.arguments <= params + batch
  assert update.total == sum(update[1:])
  silent = SimpleNamespace(memory_analysis=lambda: None)
  assert memory_check.needs_of(state, ('update', silent, state)) is None


def test_a_run_uses_the_programs_that_it_is_given(model, setup, programs, tmp_path):
  calls = {'train_step': 0, 'eval_step': 0}

  def counted(name):
    def call(*arguments):
      calls[name] += 1
      return getattr(programs, name)(*arguments)
    return call

  train(Settings(train=dataclasses.replace(Settings().train, steps=5)), make_task(model), setup,
        tmp_path, programs=programs._replace(**{name: counted(name) for name in calls}))
  assert calls == {'train_step': 5, 'eval_step': 1}


class Fakes:
  """Fake programs and a fake device, and a record of what is compiled and logged.

  `need` is a function from rows to kilobytes. The real state of the model is small beside them.
  """

  def __init__(self, monkeypatch, need, has, search=0):
    self.compiled, self.said, self._need, self._search = [], [], need, search
    monkeypatch.setattr(device_memory, 'capacity', lambda: has and 1000 * has)
    monkeypatch.setattr(memory_check, 'compile_programs', self._compile)
    monkeypatch.setattr(memory_check.logging, 'info',
                        lambda text, *each: self.said.append(text % each))

  def _compile(self, settings, model, setup, shape):
    assert shape[1:] == LENGTHS
    self.compiled.append(shape[0])
    need = self._need(shape[0])
    if need == math.inf:
      raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: out of memory')
    return SimpleNamespace(rows=shape[0], train_step=self._program(need),
                           eval_step=self._program(need and need // 3))

  def _program(self, need):
    analysis = None if need is None else SimpleNamespace(
        argument_size_in_bytes=500 * need, output_size_in_bytes=100, alias_size_in_bytes=100,
        temp_size_in_bytes=500 * need)
    return SimpleNamespace(memory_analysis=lambda: analysis)

  def run(self, model, rows, *, begun=False, accumulate=1, **changes):
    base = Settings()
    settings = base._replace(train=dataclasses.replace(base.train, **changes),
                             optimizer=dataclasses.replace(base.optimizer, accumulate=accumulate))
    setup = make_setup(settings, model, make_mesh(settings.mesh, rows // accumulate))
    return memory_check.compile_within_memory(
        settings, model, setup, (rows, *LENGTHS), self._compile_search, begun)

  def _compile_search(self, params):
    if self._search == math.inf:
      raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: out of memory')
    return 'search', self._program(self._search)


def test_a_batch_that_fits_is_compiled_once_and_logged(model, monkeypatch):
  fakes = Fakes(monkeypatch, lambda rows: 1000 * rows, has=10 ** 6)
  programs, tokens = fakes.run(model, 40, fit_memory=True)
  assert (programs.rows, tokens, fakes.compiled) == (40, 40 * TARGET_LENGTH, [40])
  compiling, memory = fakes.said
  assert compiling.startswith('compiling the update, the evaluation and the search')
  named = f'40 rows of {LENGTHS[0]} + {LENGTHS[1]} tokens'
  update, evaluation, search = memory.split('; ')
  assert update == f'memory on a device, which has 1.00 GB: update, {named}: 40.0 MB'
  assert evaluation.startswith(f'evaluation, {named}: 13.') and search.startswith('search: ')


@pytest.mark.parametrize(('need', 'accumulate', 'fits'), [
    (lambda rows: 1000 * rows, 1, 100), (lambda rows: 1000 * rows, 3, 96),
    (lambda rows: 50_000 + 500 * rows, 1, 100), (lambda rows: 700 * -(-rows // 32) * 32, 1, 128),
    (lambda rows: 20_000 + 4000 * math.sqrt(rows), 1, 400),
    (lambda rows: 1000 * rows if rows <= 300 else math.inf, 1, 100)])
def test_a_batch_that_does_not_fit_is_refused_with_the_largest_that_fits(
    model, monkeypatch, need, accumulate, fits):
  def whole(rows):
    return need(rows) if need(rows) == math.inf else int(need(rows))
  fakes = Fakes(monkeypatch, whole, has=100_000)
  with pytest.raises(UserError) as raised:
    fakes.run(model, 480, accumulate=accumulate)
  message = str(raised.value)
  assert f'the largest found to fit is train.tokens_per_batch={fits * TARGET_LENGTH}: ' in message
  assert f'train.tokens_per_batch={480 * TARGET_LENGTH} needs ' in message
  assert 'on a device that has 100.0 MB of memory' in message and '\n' not in message
  if need(480) < math.inf:
    _, header, *table = fakes.said
    assert 'which has 100.0 MB' in header and 'temporaries' in header
    for line, name in zip(table, ('update', 'evaluation', 'search'), strict=True):
      assert line.startswith(name)
  assert len(fakes.compiled) <= 10
  fakes.compiled.clear()
  programs, tokens = fakes.run(model, 480, accumulate=accumulate, fit_memory=True)
  assert (programs.rows, tokens) == (fits, fits * TARGET_LENGTH)
  assert len(set(fakes.compiled)) == len(fakes.compiled)  # No size is compiled twice.
  assert f'the run takes train.tokens_per_batch={tokens}' in '\n'.join(fakes.said)


def test_however_memory_grows_the_search_ends_with_something_that_fits(model, monkeypatch):
  fakes = Fakes(monkeypatch, lambda rows: 10 if rows < 4 * 7777 else 10 ** 9, has=1000)
  programs, _ = fakes.run(model, 40_000, fit_memory=True)
  assert 4 <= programs.rows < 4 * 7777 and len(fakes.compiled) == 11


@pytest.mark.parametrize(('options', 'search', 'facts'), [
    ({'begun': True}, 0, ['the run was begun with it', 'model.remat']),
    ({'begun': True, 'fit_memory': True}, 0, ['the run was begun with it']),
    ({'fit_memory': True}, 0, [f'not even {4 * TARGET_LENGTH} fits', 'optimizer.accumulate']),
    ({}, 0, [f'not even {4 * TARGET_LENGTH} fits']),
    ({'fit_memory': True}, 70_000, ['the search, needs 70.0 MB', 'lower decode.batch_size']),
])
def test_a_run_that_no_smaller_batch_helps_is_refused(model, monkeypatch, options, search, facts):
  fakes = Fakes(monkeypatch, lambda rows: 60_000 + rows, has=60_002, search=search)
  with pytest.raises(UserError) as raised:
    fakes.run(model, 40, **options)
  for fact in facts:
    assert fact in str(raised.value), raised.value
  assert len(fakes.compiled) <= 2


@pytest.mark.parametrize(('need', 'has'), [(None, 1000), (5000, None)])
def test_unknown_memory_is_logged_and_not_checked(model, monkeypatch, need, has):
  fakes = Fakes(monkeypatch, lambda rows: need, has)
  programs, tokens = fakes.run(model, 40)
  assert (programs.rows, tokens) == (40, 40 * TARGET_LENGTH)
  _, line = fakes.said
  assert 'not checked' in line


def test_a_program_that_its_compiler_refuses_is_named_where_memory_is_unknown(model, monkeypatch):
  fakes = Fakes(monkeypatch, lambda rows: math.inf, None)
  with pytest.raises(UserError, match=r'tokens_per_batch=\d+ does not fit into the memory'):
    fakes.run(model, 40)


def test_a_search_that_the_compiler_refuses_names_the_setting_that_helps(model, monkeypatch):
  fakes = Fakes(monkeypatch, lambda rows: 10, 1000, search=math.inf)
  with pytest.raises(UserError, match=r'the search .* does not fit .*; lower decode\.batch_size'):
    fakes.run(model, 40)


def test_another_error_of_the_compiler_is_raised(model, monkeypatch):
  fakes = Fakes(monkeypatch, lambda rows: 10, 1000)
  def fail(*_):
    raise jax.errors.JaxRuntimeError('INTERNAL: something else')
  monkeypatch.setattr(memory_check, 'compile_programs', fail)
  with pytest.raises(jax.errors.JaxRuntimeError, match='something else'):
    fakes.run(model, 40)


def fake_devices(monkeypatch, platform, stats, count=2):
  device = SimpleNamespace(platform=platform, memory_stats=lambda: stats)
  monkeypatch.setattr(jax, 'local_devices', lambda: [device] * count)
  monkeypatch.setattr(jax, 'local_device_count', lambda: count)


def write(root, files):
  for name, text in files.items():
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


MACHINE = {'proc/meminfo': 'MemTotal:  900 kB\nMemFree:  7 kB\n',
           'proc/self/status': 'Name: x\nVmSize: 300 kB\nVmRSS:  99 kB\nRssAnon:  100 kB\n'}


@pytest.mark.parametrize(('files', 'kilobytes'), [
    ({}, 800),
    ({'proc/self/cgroup': '0::/\n', 'sys/fs/cgroup/memory.max': f'{500 * 1024}\n'}, 400),
    ({'proc/self/cgroup': '0::/a/b\n', 'sys/fs/cgroup/a/memory.max': f'{300 * 1024}\n',
      'sys/fs/cgroup/a/b/memory.max': 'max\n', 'sys/fs/cgroup/c/memory.max': '1\n'}, 200),
    ({'proc/self/cgroup': '0::/\n', 'sys/fs/cgroup/memory.max': f'{5000 * 1024}\n'}, 800),
    ({'proc/self/cgroup': '4:cpu,memory:/job\n3:cpuset:/\n0::/\n',
      'sys/fs/cgroup/memory/job/memory.limit_in_bytes': f'{700 * 1024}\n'}, 600),
    ({'proc/self/cgroup': '0::/\n', 'sys/fs/cgroup/memory.max': f'{50 * 1024}\n'}, 0),
    ({'proc/self/limits': f'Max address space  {700 * 1024}  unlimited  bytes\n'}, 400),
    ({'proc/self/limits': 'Max address space  unlimited  unlimited  bytes\n'}, 800),
])
def test_a_cpu_has_the_least_of_all_limits(monkeypatch, tmp_path, files, kilobytes):
  fake_devices(monkeypatch, 'cpu', None)
  write(tmp_path, {**MACHINE, **files})
  assert device_memory.capacity(tmp_path) == kilobytes * 1024 // 2


def test_an_accelerator_reports_its_memory(monkeypatch, tmp_path):
  write(tmp_path, MACHINE)
  fake_devices(monkeypatch, 'gpu', {'bytes_limit': 1000, 'bytes_in_use': 30})
  assert device_memory.capacity(tmp_path) == 970
  for stats in (None, {}):
    fake_devices(monkeypatch, 'gpu', stats)
    assert device_memory.capacity(tmp_path) is None
  fake_devices(monkeypatch, 'cpu', None)
  assert device_memory.capacity(tmp_path / 'nowhere') is None


def test_the_memory_of_this_machine_is_found():
  assert 10 ** 7 < device_memory.capacity() < 10 ** 14
  assert jnp.zeros(1).device.platform == 'cpu'
