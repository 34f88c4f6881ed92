"""Reports a run: a progress bar and log lines for people, JSONL and TensorBoard for machines."""

import contextlib
import html
import json
import math
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import logging
from tensorboardX import summary
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import RecordWriter
from tqdm import tqdm

from transformer.errors import type_and_message
from transformer.runs.metrics_file import MetricsFile
from transformer.runs.run_directory import METRICS
from transformer.system.progress import progress_bar

TENSORBOARD = 'tensorboard'
_BINS = 30
_QUIET_SECONDS = 30.0  # Time between two log lines without a terminal.
_EVENTS = re.compile(r'events\.out\.tfevents\.(\d+)\.')
_MARKDOWN = re.compile(r'([\\`*_{}\[\]()#+.!|~$:-])')


class Sample(NamedTuple):
  """A sentence of the validation split as text: the source, a reference and a translation."""

  source: str
  reference: str
  translation: str


class Reporter:
  """Writes `metrics.jsonl` and `tensorboard/`, and draws a bar at a terminal.

  Each line of the JSONL file is an object with its `step`; an evaluation has its own line.
  A resumed run removes the lines after its checkpoint, since it will write them again.

  Once the files are open, a full disk does not end a run. A line that does not fit into
  `metrics.jsonl` is kept in memory and in checkpoints, and is tried again with each later line.
  """

  def __init__(self, workdir: str | os.PathLike, step: int, steps: int,
               written: Mapping[str, Any] | None = None):
    """Opens the files.

    Args:
      workdir: the run's directory.
      step: the number of updates so far.
      steps: the number of updates in the whole run.
      written: the value of `written()` in the checkpoint of `step`.
    """
    self._metrics = MetricsFile(Path(workdir) / METRICS, step, written or {}, self.warn)
    self._tensorboard = _Events(Path(workdir) / TENSORBOARD, step + 1, self.warn)
    self._bar = progress_bar(steps, step, stays=True)
    self._shown: dict[str, str] = {}
    # The first step of this process and its time; the time of the latest log line.
    self._first: tuple[int, float] | None = None
    self._logged = -math.inf

  def advance(self, step: int, shown: Mapping[str, str]):
    """Moves the bar to `step`; without a terminal, logs the first step and then every half minute.

    Args:
      step: the number of updates so far.
      shown: figures for people, as text by a short name.
    """
    self._bar.update(step - self._bar.n)
    now = time.monotonic()
    if self._first is None:
      self._first = step, now
    if self._bar.disable and now - self._logged >= _QUIET_SECONDS:
      self._log(step, shown)

  def write(self, step: int, values: dict[str, Any], shown: Mapping[str, str],
            line: str | None = None):
    """Records metrics.

    Args:
      step: the number of updates so far.
      values: numbers by name, such as `train/loss`.
      shown: figures for people, as text by a short name.
      line: a line for people that stays visible, above the bar if there is one.
    """
    # JSON has no NaN and no infinity.
    numbers = {name: value if math.isfinite(value) else None for name, value in values.items()}
    self._metrics.write(json.dumps({'step': step, **numbers}) + '\n')
    self._tensorboard.write(step, values)
    self._shown.update(shown)
    self._bar.set_postfix_str(', '.join(f'{name} {each}' for name, each in self._shown.items()))
    if line is not None:
      self.say(f'step {step}/{self._bar.total}  {line}')
    elif self._bar.disable:
      self._log(step, shown)

  def write_samples(self, step: int, samples: Sequence[Sample]):
    """Writes sentences beside their translations to TensorBoard."""
    self._tensorboard.write_text(step, 'valid/samples', _as_markdown(samples))

  def write_histograms(self, step: int, histograms: Mapping[str, Sequence[float]]):
    """Writes histograms of numbers, by name, to TensorBoard."""
    self._tensorboard.write_histograms(step, histograms)

  def write_pictures(self, step: int, pictures: Mapping[str, np.ndarray]):
    """Writes pictures, uint8 [height, width] by name, to TensorBoard."""
    self._tensorboard.write_pictures(step, pictures)

  def say(self, message: str):
    """Logs a message, above the bar if there is one."""
    if self._bar.disable:
      logging.info('%s', message)
      return
    with contextlib.suppress(OSError):  # The terminal may have closed.
      self._bar.write(message, file=sys.stderr)

  def warn(self, message: str):
    """Logs a warning about a fault that the run survives."""
    with tqdm.external_write_mode(file=sys.stderr):
      logging.warning('%s', message)

  def _log(self, step: int, shown: Mapping[str, str]):
    """Logs the step, and the time left at the speed of this process."""
    parts = [f'{name} {value}' for name, value in shown.items()]
    now = self._logged = time.monotonic()
    first, since = self._first or (step, now)
    if first < step < self._bar.total:
      left = (now - since) / (step - first) * (self._bar.total - step)
      parts.append(f'{tqdm.format_interval(left)} left')
    logging.info('step %d/%d  %s', step, self._bar.total, '  '.join(parts))

  def written(self) -> dict[str, Any]:
    """Returns the state of `metrics.jsonl` as JSON data, for a checkpoint."""
    return self._metrics.written()

  def close(self):
    """Closes the files; the bar stays visible."""
    self._bar.close()
    self._metrics.close()
    self._tensorboard.close()


class NoReporter:
  """A `Reporter` that does nothing, for all processes but the first."""

  def advance(self, *_, **__):
    """Does nothing."""

  write = write_samples = write_histograms = write_pictures = say = warn = close = advance

  def written(self) -> dict[str, Any]:
    """Returns no data, since nothing is written."""
    return {}


def _as_markdown(samples: Sequence[Sample]) -> str:
  """Returns a table with a row for each sample; escapes everything that would be markup."""
  rows = [[_MARKDOWN.sub(r'\\\1', html.escape(each, quote=False)) for each in sample]
          for sample in samples]
  return ''.join(f'| {" | ".join(row)} |\n'
                 for row in (Sample._fields, ('---',) * len(Sample._fields), *rows))


class _Events:
  """An event file for TensorBoard; after a failed write it gets nothing more.

  tensorboardX's `SummaryWriter` writes in a thread. A full disk ends that thread, and then
  training waits for ever for room in the thread's queue. So this class needs no thread.
  """

  def __init__(self, folder: Path, step: int, warn: Callable[[str], None]):
    self._folder, self._warn, self._writer = folder, warn, None
    with self._surviving():
      folder.mkdir(exist_ok=True)
      self._writer = RecordWriter(str(_next_file(folder)))
      self._add(0, file_version='brain.Event:2')
      # This makes TensorBoard hide the events of earlier processes from this step on.
      self._add(step, session_log=SessionLog(status=SessionLog.START))
      self._writer.flush()

  def write(self, step: int, values: dict[str, float]):
    self._show(step, (summary.scalar(name, value) for name, value in values.items()))

  def write_text(self, step: int, name: str, markdown: str):
    self._show(step, [summary.text(name, markdown)])

  def write_histograms(self, step: int, histograms: Mapping[str, Sequence[float]]):
    self._show(step, (summary.histogram(name, np.asarray(values), bins=_BINS)
                      for name, values in histograms.items() if np.all(np.isfinite(values))))

  def write_pictures(self, step: int, pictures: Mapping[str, np.ndarray]):
    self._show(step, (summary.image(name, picture, dataformats='HW')
                      for name, picture in pictures.items()))

  def close(self):
    if self._writer:
      with self._surviving():
        self._writer.close()

  def _show(self, step: int, summaries: Iterable):
    if self._writer:
      with self._surviving():
        for each in summaries:
          self._add(step, summary=each)
        self._writer.flush()

  def _add(self, step: int, **content):
    event = Event(wall_time=time.time(), step=step, **content)
    self._writer.write(event.SerializeToString())

  @contextlib.contextmanager
  def _surviving(self):
    """Warns and stops writing after an error."""
    try:
      yield
    except Exception as error:  # tensorboardX raises many types.
      writer, self._writer = self._writer, None
      with contextlib.suppress(Exception):
        if writer:
          writer.close()
      reason = error.strerror if isinstance(error, OSError) else type_and_message(error)
      self._warn(f'{self._folder} cannot be written: {reason}; TensorBoard gets no '
                 f'more until the next start, but {METRICS} has everything')


def _next_file(folder: Path) -> Path:
  """Returns the path of an event file whose name sorts after those in the folder.

  TensorBoard reads the files by name, and no file before one that it has read. A name holds the
  time, and the clock may have been set back.
  """
  times = [int(parts[1]) for name in os.listdir(folder) if (parts := _EVENTS.match(name))]
  return folder / (f'events.out.tfevents.{max([int(time.time()) - 1, *times]) + 1:010d}.'
                   f'{socket.gethostname()}.{os.getpid()}')
