"""Reads what a run has written for TensorBoard."""

import struct

from tensorboardX.proto.event_pb2 import Event, SessionLog

from transformer.experiment.trackers import Sample


def events(workdir):
  """Yields all events; in the file, each lies between its length and digests.

  The files are in the order of their names, as TensorBoard reads them.
  """
  for path in sorted((workdir / 'tensorboard').iterdir()):
    content = path.read_bytes()
    while content:
      (length,) = struct.unpack('<Q', content[:8])
      event = Event()
      event.ParseFromString(content[12 : 12 + length])
      yield event
      content = content[16 + length :]


def kept(workdir, *tags):
  """Returns (step, value) of the tags, without the values that TensorBoard hides after a resume."""
  values = []
  for event in events(workdir):
    if event.session_log.status == SessionLog.START:
      values = [(step, value) for step, value in values if step < event.step]
    values += [
      (event.step, value) for value in event.summary.value if value.tag in tags
    ]
  return values


def shown(workdir):
  """Returns (step, Markdown) of the samples."""
  return [
    (step, value.tensor.string_val[0].decode())
    for step, value in kept(workdir, 'valid/samples/text_summary')
  ]


def samples_of(markdown):
  """Returns the samples, each a block of code: lines after four spaces."""
  samples = []
  for block in markdown.split('\n\n---\n\n'):
    lines = block.split('\n')
    assert all(line.startswith('    ') for line in lines)
    samples.append(Sample(*(line[4:] for line in lines)))
  return samples
