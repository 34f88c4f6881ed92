"""What a run writes for TensorBoard: numbers and translations."""

import contextlib
import html
import re
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tensorboardX import summary
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import RecordWriter

from transformer.errors import optional
from transformer.runs.run_directory import METRICS
from transformer.system.progress import warn

TENSORBOARD = 'tensorboard'
_MARKDOWN = re.compile(r'([\\`*_{}\[\]()#+.!|~$:-])')


class Sample(NamedTuple):
  """A sentence of the validation split as text: the source, a reference and a translation."""

  source: str
  reference: str
  translation: str


class Events:
  """An event file for TensorBoard; after a failed write it gets nothing more.

  tensorboardX's `SummaryWriter` writes in a thread. A full disk ends that thread, and then
  training waits for ever for room in the thread's queue. So this class needs no thread.
  """

  def __init__(self, folder: Path, step: int):
    """Opens a new file in a folder; TensorBoard hides older events of `step` and later."""
    self._folder, self._writer = folder, None
    with optional(f'{folder} gets no events', warn):
      folder.mkdir(exist_ok=True)
      # TensorBoard reads the files of a folder in the order of their names.
      name = f'events.out.tfevents.{time.time_ns()}.{socket.gethostname()}'
      self._writer = RecordWriter(str(folder / name))
    self._write(0, [{'file_version': 'brain.Event:2'}])
    self._write(step, [{'session_log': SessionLog(status=SessionLog.START)}])

  def write_numbers(self, step: int, values: Mapping[str, float]):
    """Writes numbers by name."""
    self._write(step, ({'summary': summary.scalar(*item)} for item in values.items()))

  def write_samples(self, step: int, samples: Sequence[Sample]):
    """Writes translations."""
    self._write(step, [{'summary': summary.text('valid/samples', _as_markdown(samples))}])

  def close(self):
    """Closes the file."""
    if self._writer:
      with contextlib.suppress(Exception):
        self._writer.close()

  def _write(self, step: int, contents: Iterable[Mapping[str, Any]]):
    """Writes events; a failure closes the file."""
    if self._writer:
      whole = False
      with optional(f'{self._folder} gets nothing more until the next start; {METRICS} has '
                    f'everything', warn):
        for content in contents:
          event = Event(wall_time=time.time(), step=step, **content)
          self._writer.write(event.SerializeToString())
        self._writer.flush()
        whole = True
      if not whole:
        self.close()
        self._writer = None


def _as_markdown(samples: Sequence[Sample]) -> str:
  """Returns a table with a row for each sample; escapes everything that would be markup."""
  rows = [[_MARKDOWN.sub(r'\\\1', html.escape(text, quote=False)) for text in sample]
          for sample in samples]
  return ''.join(f'| {" | ".join(row)} |\n'
                 for row in (Sample._fields, ('---',) * len(Sample._fields), *rows))
