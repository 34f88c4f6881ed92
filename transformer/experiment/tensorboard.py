"""What a run writes for TensorBoard: numbers, histograms, translations and pictures."""

import contextlib
import html
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tensorboardX import summary
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import RecordWriter

from transformer.errors import type_and_message
from transformer.runs.run_directory import METRICS
from transformer.system.progress import warn

TENSORBOARD = 'tensorboard'
_BINS = 30
_EVENTS = re.compile(r'events\.out\.tfevents\.(\d+)\.')
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
    with self._surviving():
      folder.mkdir(exist_ok=True)
      self._writer = RecordWriter(str(_next_file(folder)))
      self._add(0, file_version='brain.Event:2')
      self._add(step, session_log=SessionLog(status=SessionLog.START))
      self._writer.flush()

  def write_numbers(self, step: int, values: Mapping[str, float]):
    """Writes numbers by name."""
    self._show(step, (summary.scalar(name, value) for name, value in values.items()))

  def write_histograms(self, step: int, histograms: Mapping[str, Sequence[float]]):
    """Writes histograms by name, of numbers that are all finite."""
    self._show(step, (summary.histogram(name, np.asarray(values), bins=_BINS)
                      for name, values in histograms.items() if np.all(np.isfinite(values))))

  def write_examples(self, step: int, samples: Sequence[Sample],
                     pictures: Mapping[str, np.ndarray]):
    """Writes translations, and pictures by name, uint8 [height, width]."""
    text = [summary.text('valid/samples', _as_markdown(samples))] if samples else []
    self._show(step, [*text, *(summary.image(name, picture, dataformats='HW')
                               for name, picture in pictures.items())])

  def close(self):
    """Closes the file."""
    if self._writer:
      with self._surviving():
        self._writer.close()

  def _show(self, step: int, summaries: Iterable):
    if self._writer:
      with self._surviving():
        for content in summaries:
          self._add(step, summary=content)
        self._writer.flush()

  def _add(self, step: int, **content):
    event = Event(wall_time=time.time(), step=step, **content)
    self._writer.write(event.SerializeToString())

  @contextlib.contextmanager
  def _surviving(self) -> Iterator[None]:
    """Warns and stops writing after an error."""
    try:
      yield
    except Exception as error:  # tensorboardX raises many types.
      writer, self._writer = self._writer, None
      with contextlib.suppress(Exception):
        if writer:
          writer.close()
      reason = error.strerror if isinstance(error, OSError) else type_and_message(error)
      warn(f'{self._folder} cannot be written: {reason}; TensorBoard gets no more until the next '
           f'start, but {METRICS} has everything')


def _as_markdown(samples: Sequence[Sample]) -> str:
  """Returns a table with a row for each sample; escapes everything that would be markup."""
  rows = [[_MARKDOWN.sub(r'\\\1', html.escape(text, quote=False)) for text in sample]
          for sample in samples]
  return ''.join(f'| {" | ".join(row)} |\n'
                 for row in (Sample._fields, ('---',) * len(Sample._fields), *rows))


def _next_file(folder: Path) -> Path:
  """Returns the path of an event file whose name sorts after those in the folder.

  TensorBoard reads the files by name, and no file before one that it has read. A name holds the
  time, and the clock may have been set back.
  """
  times = [int(parts[1]) for name in os.listdir(folder) if (parts := _EVENTS.match(name))]
  return folder / (f'events.out.tfevents.{max([int(time.time()) - 1, *times]) + 1:010d}.'
                   f'{socket.gethostname()}.{os.getpid()}')
