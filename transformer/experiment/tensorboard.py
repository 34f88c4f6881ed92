"""What a run writes for TensorBoard: numbers and translations."""

import html
import re
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboardX import summary
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import RecordWriter

from transformer.config import Config
from transformer.experiment.reporters import Sample

TENSORBOARD = 'tensorboard'
_MARKDOWN = re.compile(r'([\\`*_{}\[\]()#+.!|~$:-])')


class Events:
  """An event file for TensorBoard.

  tensorboardX's `SummaryWriter` writes in a thread of its own. A full disk ends that thread, and
  then its caller waits for ever for room in the thread's queue.
  """

  def __init__(self, config: Config, workdir: Path, step: int):
    """Opens a new file in a run's directory; TensorBoard hides older events after `step`."""
    folder = workdir / TENSORBOARD
    folder.mkdir(exist_ok=True)
    # TensorBoard reads the files of a folder in the order of their names.
    name = f'events.out.tfevents.{time.time_ns()}.{socket.gethostname()}'
    self._writer = RecordWriter(str(folder / name))
    self._write(0, [{'file_version': 'brain.Event:2'}])
    self._write(step + 1, [{'session_log': SessionLog(status=SessionLog.START)}])

  def numbers(self, step: int, values: Mapping[str, float]):
    """Writes numbers by name."""
    self._write(step, ({'summary': summary.scalar(*item)} for item in values.items()))

  def samples(self, step: int, samples: Sequence[Sample]):
    """Writes translations."""
    self._write(step, [{'summary': summary.text('valid/samples', _as_markdown(samples))}])

  def close(self, error: BaseException | None):
    """Closes the file."""
    self._writer.close()

  def _write(self, step: int, contents: Iterable[Mapping[str, Any]]):
    for content in contents:
      event = Event(wall_time=time.time(), step=step, **content)
      self._writer.write(event.SerializeToString())
    self._writer.flush()


def _as_markdown(samples: Sequence[Sample]) -> str:
  """Returns a table with a row for each sample; escapes everything that would be markup."""
  rows = [
    [_MARKDOWN.sub(r'\\\1', html.escape(text, quote=False)) for text in sample]
    for sample in samples
  ]
  return ''.join(
    f'| {" | ".join(row)} |\n' for row in (Sample._fields, ('---',) * len(Sample._fields), *rows)
  )
