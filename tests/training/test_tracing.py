"""A window of steps is traced, whole or as far as the run came, and nothing else is."""

import gzip
import json

import jax
import jax.numpy as jnp
import pytest

from tests.training.conftest import NumberedBatches, Settings, make_batch
from transformer.training.loop import train
from transformer.training.tracing import Tracer


def traced_steps(folder):
  """The numbers of the annotated steps, of the one trace that TensorBoard and Perfetto find."""
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


@pytest.mark.parametrize(('window', 'said'), [(None, []), ((8, 9), ['steps 8 to 9'])])
def test_a_window_that_is_not_reached_leaves_a_line_and_no_file(tmp_path, window, said):
  lines = []
  tracer = Tracer(tmp_path / 'folder', window, lines.append)
  assert [tracer.run(number, abs, -number) for number in range(1, 8)] == list(range(1, 8))
  tracer.close()
  assert not (tmp_path / 'folder').exists()
  assert len(lines) == len(said) and all(each in line for each, line in zip(said, lines,
                                                                            strict=True))


def test_a_run_that_dies_in_the_window_leaves_its_trace(model, tmp_path):
  with pytest.raises(InterruptedError):
    train(Settings(), model, NumberedBatches(fatal=3), [make_batch(100)], lambda params: 0.0,
          tmp_path, profile=(2, 9))
  assert traced_steps(tmp_path / 'tensorboard') == [2, 3]
