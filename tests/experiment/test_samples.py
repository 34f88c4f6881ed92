"""What only TensorBoard shows: translations, pictures and histograms of gradient norms."""

import dataclasses
import html
import io
import json
import re
import struct

import numpy as np
import pytest
from PIL import Image
from tensorboardX.proto.event_pb2 import Event, SessionLog

from tests.tiny_training import NumberedBatches, Settings, make_task, train_tiny
from transformer.experiment import reporting
from transformer.experiment.reporting import NoReporter, Reporter, Sample
from transformer.experiment.validation import Validation
from transformer.training.step import init_params

PICTURE = np.arange(35, dtype=np.uint8).reshape(5, 7)
HOSTILE = Sample('a | b \\ *c* `d` [e](f)', '<b>& # _g_ ~h~', '$x$ ![i](j) 1. - — ü')


def events(workdir):
  """Yields all events; in the file, each lies between its length and digests.

  The files are in the order of their names, as TensorBoard reads them.
  """
  for path in sorted((workdir / 'tensorboard').iterdir()):
    content = path.read_bytes()
    while content:
      length, = struct.unpack('<Q', content[:8])
      event = Event()
      event.ParseFromString(content[12:12 + length])
      yield event
      content = content[16 + length:]


def kept(workdir, *tags):
  """Returns (step, value) of the tags, without the values that TensorBoard hides after a resume."""
  found = []
  for event in events(workdir):
    if event.session_log.status == SessionLog.START:
      found = [each for each in found if each[0] < event.step]
    found += [(event.step, value) for value in event.summary.value if value.tag in tags]
  return found


def shown(workdir):
  """Returns (step, Markdown) of the samples."""
  return [(step, value.tensor.string_val[0].decode())
          for step, value in kept(workdir, 'valid/samples/text_summary')]


def cells(markdown):
  """Returns the samples of a table as a browser would show them."""
  _, _, *rows = markdown.splitlines()
  return [Sample(*(html.unescape(re.sub(r'\\(.)', r'\1', cell))
                   for cell in re.split(r'(?<!\\) \| ', row[2:-2]))) for row in rows]


def run(model, workdir, fatal=None, **changes):
  settings = Settings()
  settings = settings._replace(train=dataclasses.replace(settings.train, **changes))
  task = make_task(model, NumberedBatches(fatal), validate=lambda params: Validation(
      1.0, [Sample('source', 'reference', 'a translation'), HOSTILE], {'map': PICTURE}))
  train_tiny(settings, task, workdir)


def test_samples_are_shown_without_markup(tmp_path):
  reporter = Reporter(tmp_path, 0, 9)
  reporter.write_samples(3, [HOSTILE, Sample('', 'b', '')])
  reporter.close()
  (step, markdown), = shown(tmp_path)
  assert step == 3 and cells(markdown) == [HOSTILE, Sample('', 'b', '')]
  assert markdown.startswith('| source | reference | translation |\n| --- | --- | --- |\n')
  assert '<b>' not in markdown and not re.search(r'(?<!\\)[*`_\[$]', markdown)
  NoReporter().write_samples(3, [HOSTILE])


def test_points_are_shown_after_the_clock_was_set_back(tmp_path, monkeypatch):
  # At last in the same second, and at another digit of the time.
  for step, clock in ((0, 2_000_000_000), (2, 1_999_999_910), (4, 1_999_999_911), (4, 999_999_999),
                      (6, 2_000_000_003), (8, 2_000_000_003)):
    monkeypatch.setattr(reporting.time, 'time', lambda clock=clock: clock + 0.9)
    reporter = Reporter(tmp_path, step, 9)
    for each in (1, 2, 3):
      reporter.write(step + each, {'a': step}, {})
    reporter.close()
  assert [(step, value.simple_value) for step, value in kept(tmp_path, 'a')] == [
      (1, 0), (2, 0), (3, 2), (4, 2), (5, 4), (6, 4), (7, 6), (8, 6), (9, 8), (10, 8), (11, 8)]


@pytest.mark.long
@pytest.mark.parametrize('fatal', [7, 11])
def test_an_evaluation_shows_its_samples_once_also_after_a_resume(model, tmp_path, fatal):
  run(model, tmp_path / 'whole')
  with pytest.raises(InterruptedError):
    run(model, tmp_path / 'parts', fatal=fatal, checkpoint_every=4)
  run(model, tmp_path / 'parts', checkpoint_every=4)
  assert [step for step, _ in shown(tmp_path / 'whole')] == [5, 10, 12]
  assert shown(tmp_path / 'parts') == shown(tmp_path / 'whole')
  for step, value in kept(tmp_path / 'parts', 'map'):
    assert step in (5, 10, 12)
    with Image.open(io.BytesIO(value.image.encoded_image_string)) as image:
      np.testing.assert_array_equal(np.asarray(image.convert('L')), PICTURE)
  assert len(kept(tmp_path / 'parts', 'map')) == 3
  text = (tmp_path / 'whole' / 'metrics.jsonl').read_text()
  assert not any(each in text for each in ('samples', 'map', 'gradient_norm/'))


def test_the_gradient_norms_of_layers_are_shown_as_often_as_the_loss(model, tmp_path):
  run(model, tmp_path)
  layers = init_params(model, 0).keys()
  tags = [f'gradient_norm/{name}' for name in layers]
  found = kept(tmp_path, *tags)
  assert [step for step, _ in found] == [step for step in (4, 8, 12) for _ in layers]
  assert {value.tag for _, value in found} == set(tags)
  rows = [json.loads(line) for line in (tmp_path / 'metrics.jsonl').read_text().splitlines()]
  wanted = {row['step']: row['train/gradient_norm'] for row in rows if 'train/gradient_norm' in row}
  for step, norm in wanted.items():
    histograms = [value.histo for each, value in found if each == step]
    assert {each.num for each in histograms} == {4} and all(each.min > 0 for each in histograms)
    # The norm of all gradients lies between the largest norm of a layer and the sum of all.
    assert max(each.sum / 4 for each in histograms) <= norm
    assert norm <= sum(each.sum for each in histograms) / 4


@pytest.mark.long
def test_layers_without_finite_gradients_are_left_out(tmp_path):
  reporter = Reporter(tmp_path, 0, 9)
  reporter.write_histograms(3, {'good': [1.0, 2.0], 'bad': [1.0, float('nan')]})
  reporter.close()
  (step, value), = kept(tmp_path, 'good', 'bad')
  assert (step, value.tag, value.histo.num, value.histo.sum) == (3, 'good', 2, 3.0)
  NoReporter().write_histograms(3, {})
  NoReporter().write_pictures(3, {})
