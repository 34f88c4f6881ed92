"""Reads what a run has written for TensorBoard."""

import html
import re
import struct

from tensorboardX.proto.event_pb2 import Event, SessionLog

from transformer.experiment.reporters import Sample


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


def cells(markdown):
  """Returns the samples of a table as a browser would show them."""
  _, _, *rows = markdown.splitlines()
  return [
    Sample(
      *(
        html.unescape(re.sub(r'\\(.)', r'\1', cell))
        for cell in re.split(r'(?<!\\) \| ', row[2:-2])
      )
    )
    for row in rows
  ]
