"""What TensorBoard shows of translations: as they are, once for each evaluation."""

import dataclasses
import html
import re
import struct

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from tests.training.conftest import NumberedBatches, Settings, make_batch
from transformer.training.loop import train
from transformer.training.reporting import NoReporter, Reporter, Sample

HOSTILE = Sample('a | b \\ *c* `d` [e](f)', '<b>& # _g_ ~h~', '$x$ ![i](j) 1. - — ü')


def events(workdir):
  """Every event in the order that processes wrote them: the length, its digest, the event, its."""
  for path in sorted((workdir / 'tensorboard').iterdir(), key=lambda path: path.stat().st_mtime_ns):
    content = path.read_bytes()
    while content:
      length, = struct.unpack('<Q', content[:8])
      event = Event()
      event.ParseFromString(content[12:12 + length])
      yield event
      content = content[16 + length:]


def shown(workdir):
  """(step, Markdown) of the samples that TensorBoard keeps: a start discards what comes later."""
  found = []
  for event in events(workdir):
    if event.session_log.status == SessionLog.START:
      found = [each for each in found if each[0] < event.step]
    found += [(event.step, value.tensor.string_val[0].decode()) for value in event.summary.value
              if value.tag == 'valid/samples/text_summary']
  return found


def cells(markdown):
  """The samples of a table, once Markdown and HTML have been read as a browser would."""
  _, _, *rows = markdown.splitlines()
  return [Sample(*(html.unescape(re.sub(r'\\(.)', r'\1', cell))
                   for cell in re.split(r'(?<!\\) \| ', row[2:-2]))) for row in rows]


def run(model, workdir, fatal=None, **changes):
  settings = Settings()
  settings = settings._replace(train=dataclasses.replace(settings.train, **changes))
  train(settings, model, NumberedBatches(fatal), [make_batch(100)], lambda params: 1.0,
        workdir, samples=lambda: [Sample('source', 'reference', 'a translation'), HOSTILE])


def test_samples_mean_what_they_say(tmp_path):
  reporter = Reporter(tmp_path, 0, 9)
  reporter.write_samples(3, [HOSTILE, Sample('', 'b', '')])
  reporter.close()
  (step, markdown), = shown(tmp_path)
  assert step == 3 and cells(markdown) == [HOSTILE, Sample('', 'b', '')]
  assert markdown.startswith('| source | reference | translation |\n| --- | --- | --- |\n')
  assert '<b>' not in markdown and not re.search(r'(?<!\\)[*`_\[$]', markdown)
  NoReporter().write_samples(3, [HOSTILE])


@pytest.mark.parametrize('fatal', [7, 11])
def test_an_evaluation_shows_its_samples_once_also_where_a_run_is_resumed(model, tmp_path, fatal):
  run(model, tmp_path / 'whole')
  with pytest.raises(InterruptedError):
    run(model, tmp_path / 'parts', fatal=fatal, checkpoint_every=4)
  run(model, tmp_path / 'parts', checkpoint_every=4)
  assert [step for step, _ in shown(tmp_path / 'whole')] == [5, 10, 12]
  assert shown(tmp_path / 'parts') == shown(tmp_path / 'whole')
  assert 'samples' not in (tmp_path / 'whole' / 'metrics.jsonl').read_text()
