"""Only a window of steps is traced, as far as the run reaches it."""

import gzip
import json

import jax
import jax.numpy as jnp
import pytest

from transformer.experiment.tracing import Tracer


def traced_steps(folder):
  """Returns the numbers of the steps in the trace that TensorBoard and Perfetto find."""
  (path,) = folder.glob('plugins/profile/*/perfetto_trace.json.gz')
  assert list(path.parent.glob('*.xplane.pb'))
  with gzip.open(path) as file:
    events = json.load(file)['traceEvents']
  return sorted(int(event['args']['step_num']) for event in events if event.get('name') == 'train')


@pytest.fixture
def said(caplog):
  """Returns a function that returns the lines that were logged."""
  caplog.set_level('INFO')
  return lambda: [record.message for record in caplog.records if record.name == 'absl']


@pytest.mark.parametrize(
  ('window', 'steps', 'line'),
  [
    ((3, 5), range(1, 8), 'traced steps 3 to 5'),
    ((3, 3), range(1, 8), 'traced steps 3 to 3'),
    ((3, 11), range(5, 8), 'traced steps 5 to 7'),
  ],
)
def test_steps_in_the_window_are_traced(tmp_path, said, window, steps, line):
  tracer, step, value = Tracer(tmp_path, window), jax.jit(lambda x: x + 1), jnp.zeros(())
  for number in steps:
    value = tracer.run(number, step, value)
  assert len(said()) == (window[1] in steps)
  tracer.close()
  assert value == len(steps)
  first, last = max(window[0], steps[0]), min(window[1], steps[-1])
  assert traced_steps(tmp_path) == list(range(first, last + 1))
  assert said()[0].startswith(line) and str(tmp_path) in said()[0] and len(said()) == 1


@pytest.mark.parametrize('call', ['start_trace', 'stop_trace'])
def test_a_trace_that_cannot_be_written_ends_no_run(tmp_path, monkeypatch, said, call):
  def fail(*_, **__):
    raise RuntimeError('FAILED_PRECONDITION: plugins is\nno folder')

  for name in ('start_trace', 'stop_trace'):
    monkeypatch.setattr(jax.profiler, name, fail if name == call else lambda *_, **__: None)
  tracer = Tracer(tmp_path, (2, 3))
  assert [tracer.run(number, abs, -number) for number in range(1, 6)] == list(range(1, 6))
  tracer.close()
  line = said()[0]
  assert str(tmp_path) in line and line.endswith('FAILED_PRECONDITION: plugins is no folder')


@pytest.mark.parametrize(('window', 'lines'), [(None, []), ((8, 9), ['steps 8 to 9'])])
def test_a_window_that_is_not_reached_gives_a_line_and_no_file(tmp_path, said, window, lines):
  tracer = Tracer(tmp_path / 'folder', window)
  assert [tracer.run(number, abs, -number) for number in range(1, 8)] == list(range(1, 8))
  tracer.close()
  assert not (tmp_path / 'folder').exists()
  assert len(said()) == len(lines) and all(line in said()[0] for line in lines)
