"""Only a window of steps is traced, as far as the run reaches it."""

import gzip
import json

import jax
import jax.numpy as jnp
import pytest

from tests.tiny_training import NumberedBatches, Settings, make_task, train_tiny
from transformer.experiment.tracing import Tracer


def traced_steps(folder):
  """Returns the numbers of the steps in the trace that TensorBoard and Perfetto find."""
  path, = folder.glob('plugins/profile/*/perfetto_trace.json.gz')
  assert list(path.parent.glob('*.xplane.pb'))
  with gzip.open(path) as file:
    events = json.load(file)['traceEvents']
  return sorted(int(event['args']['step_num']) for event in events if event.get('name') == 'train')


@pytest.mark.parametrize(('window', 'steps', 'said'), [
    ((3, 5), range(1, 8), 'traced steps 3 to 5'),
    ((3, 3), range(1, 8), 'traced steps 3 to 3'),
    ((3, 11), range(1, 8), 'traced steps 3 to 7'),
    ((3, 11), range(5, 8), 'traced steps 5 to 7'),
])
def test_steps_in_the_window_are_traced(tmp_path, window, steps, said):
  lines = []
  tracer = Tracer(tmp_path, window, lines.append)
  step = jax.jit(lambda x: x + 1)
  value = jnp.zeros(())
  for number in steps:
    value = tracer.run(number, step, value)
  assert len(lines) == (window[1] in steps)
  tracer.close()
  assert value == len(steps)
  first, last = max(window[0], steps[0]), min(window[1], steps[-1])
  assert traced_steps(tmp_path) == list(range(first, last + 1))
  line, = lines
  assert line.startswith(said) and str(tmp_path) in line


@pytest.mark.parametrize('call', ['start_trace', 'stop_trace'])
def test_a_trace_that_cannot_be_written_ends_no_run(tmp_path, monkeypatch, call):
  def fail(*_, **__):
    raise RuntimeError('FAILED_PRECONDITION: plugins is\nno folder')
  for name in ('start_trace', 'stop_trace'):
    monkeypatch.setattr(jax.profiler, name, fail if name == call else lambda *_, **__: None)
  lines = []
  tracer = Tracer(tmp_path, (2, 3), lines.append)
  assert [tracer.run(number, abs, -number) for number in range(1, 6)] == list(range(1, 6))
  tracer.close()
  assert lines == [f'the trace cannot be written to {tmp_path}: FAILED_PRECONDITION: plugins is no '
                   f'folder']


@pytest.mark.parametrize(('window', 'said'), [(None, []), ((8, 9), ['steps 8 to 9'])])
def test_a_window_that_is_not_reached_gives_a_line_and_no_file(tmp_path, window, said):
  lines = []
  tracer = Tracer(tmp_path / 'folder', window, lines.append)
  assert [tracer.run(number, abs, -number) for number in range(1, 8)] == list(range(1, 8))
  tracer.close()
  assert not (tmp_path / 'folder').exists()
  assert len(lines) == len(said) and all(each in line for each, line in zip(said, lines,
                                                                            strict=True))


def test_an_error_in_the_first_traced_step_is_the_one_that_is_raised(tmp_path):
  def fail():
    raise MemoryError
  lines = []
  tracer = Tracer(tmp_path, (1, 3), lines.append)
  with pytest.raises(MemoryError):
    tracer.run(1, fail)
  tracer.close()
  assert lines[0].startswith('traced steps 1 to 1')


@pytest.mark.long
def test_a_run_that_dies_in_the_window_writes_its_trace(model, tmp_path):
  with pytest.raises(InterruptedError):
    train_tiny(Settings(), make_task(model, NumberedBatches(fatal=3)), tmp_path, profile=(2, 9))
  assert traced_steps(tmp_path / 'tensorboard') == [2, 3]
