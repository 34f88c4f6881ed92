"""What a run tells: a progress bar and log lines to people, JSONL and TensorBoard to machines."""

import contextlib
import html
import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import logging
from tensorboardX import summary
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tqdm import tqdm

from transformer.training.metrics_file import Lines
from transformer.training.run_directory import METRICS

TENSORBOARD = 'tensorboard'
_BINS = 30
# What the bar shows in 80 columns: the last is not cut off, and the bar has what is left.
_BAR = '{n_fmt}/{total_fmt} {percentage:.0f}% |{bar}| {remaining} left{postfix}'
_COLUMNS = 80  # of a terminal that does not tell.
_QUIET_SECONDS = 30.0  # without a line, where there is no terminal.
_MARKDOWN = re.compile(r'([\\`*_{}\[\]()#+.!|~$:-])')


class Sample(NamedTuple):
  """A sentence of the validation split as text: the source, a reference and a translation."""

  source: str
  reference: str
  translation: str


class Reporter:
  """Writes `metrics.jsonl` and `tensorboard/`, and draws a bar at a terminal.

  The JSONL file has one object a line with its `step`; evaluations have lines of
  their own. What was written after the checkpoint that a run resumes from is cut
  off, since it will be written again; what was written before must be as it was.

  Once the files are open, a full disk or the like does not end a run: what does not
  fit into `metrics.jsonl` is kept in memory, tried again with every line, and saved
  in checkpoints until it is written.
  """

  def __init__(self, workdir: str | os.PathLike, step: int, steps: int,
               written: Mapping[str, Any] | None = None):
    """Opens the files.

    Args:
      workdir: the run's directory.
      step: updates already made.
      steps: updates in the run.
      written: what `written` said when the checkpoint of `step` was saved.
    """
    self._metrics = Lines(Path(workdir) / METRICS, step, written or {}, self.warn)
    self._tensorboard = _Events(Path(workdir) / TENSORBOARD, step + 1, self.warn)
    at_terminal = sys.stderr.isatty()
    self._bar = tqdm(total=steps, initial=step, disable=not at_terminal, bar_format=_BAR,
                     file=sys.stderr, smoothing=0.05, **(_width() if at_terminal else {}))
    self._shown: dict[str, str] = {}
    # The first step of this process and when it was made; when the latest line was logged.
    self._first: tuple[int, float] | None = None
    self._logged = -math.inf

  def advance(self, step: int, shown: Mapping[str, str]):
    """Moves the bar to `step`; without a terminal, logs the first step and then by time.

    Args:
      step: updates made.
      shown: what people watch, as text by a short name.
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
      step: updates made.
      values: numbers by name, such as `train/loss`.
      shown: the few that people watch, as text by a short name.
      line: what people are told in a line that stays, also above a bar.
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
    """Shows sentences beside their translations, in TensorBoard alone."""
    self._tensorboard.write_text(step, 'valid/samples', _as_markdown(samples))

  def write_histograms(self, step: int, histograms: Mapping[str, Sequence[float]]):
    """Shows how numbers are spread, by name, in TensorBoard alone."""
    self._tensorboard.write_histograms(step, histograms)

  def write_pictures(self, step: int, pictures: Mapping[str, np.ndarray]):
    """Shows pictures, uint8 [height, width] by name, in TensorBoard alone."""
    self._tensorboard.write_pictures(step, pictures)

  def say(self, message: str):
    """Tells people something, without breaking the bar."""
    if self._bar.disable:
      logging.info('%s', message)
    else:
      self._bar.write(message, file=sys.stderr)

  def warn(self, message: str):
    """Tells people of a fault that the run survives."""
    with tqdm.external_write_mode(file=sys.stderr):
      logging.warning('%s', message)

  def _log(self, step: int, shown: Mapping[str, str]):
    """Logs where the run is, and how much time is left at the pace of this process."""
    parts = [f'{name} {value}' for name, value in shown.items()]
    now = self._logged = time.monotonic()
    first, since = self._first or (step, now)
    if first < step < self._bar.total:
      left = (now - since) / (step - first) * (self._bar.total - step)
      parts.append(f'{tqdm.format_interval(left)} left')
    logging.info('step %d/%d  %s', step, self._bar.total, '  '.join(parts))

  def written(self) -> dict[str, Any]:
    """What `metrics.jsonl` holds by now, for a checkpoint.

    Returns:
      JSON data: its `bytes`, which are on the disk, their `sha256`, and the lines that
      are `unwritten` as they could not be written so far.
    """
    return self._metrics.written()

  def close(self):
    """Closes the files and leaves the bar as it stands."""
    self._bar.close()
    self._metrics.close()
    self._tensorboard.close()


def _width() -> dict[str, Any]:
  """How tqdm is to find the width of the terminal, which may say that it has none."""
  if os.get_terminal_size(sys.stderr.fileno()).columns:
    return {'dynamic_ncols': True}
  return {'ncols': shutil.get_terminal_size((_COLUMNS, 24)).columns}


class NoReporter:
  """Stands in for `Reporter` in a process that leaves it to another to tell."""

  def advance(self, step: int, shown: Mapping[str, str]):
    """Does nothing."""

  def write(self, step: int, values: dict[str, Any], shown: Mapping[str, str],
            line: str | None = None):
    """Does nothing."""

  def write_samples(self, step: int, samples: Sequence[Sample]):
    """Does nothing."""

  def write_histograms(self, step: int, histograms: Mapping[str, Sequence[float]]):
    """Does nothing."""

  def write_pictures(self, step: int, pictures: Mapping[str, np.ndarray]):
    """Does nothing."""

  def say(self, message: str):
    """Does nothing."""

  def warn(self, message: str):
    """Does nothing."""

  def written(self) -> dict[str, Any]:
    """Nothing is written."""
    return {}

  def close(self):
    """Does nothing."""


def _as_markdown(samples: Sequence[Sample]) -> str:
  """A table with a row for each sample, in which every sign means itself."""
  rows = [[_MARKDOWN.sub(r'\\\1', html.escape(each, quote=False)) for each in sample]
          for sample in samples]
  return ''.join(f'| {" | ".join(row)} |\n'
                 for row in (Sample._fields, ('---',) * len(Sample._fields), *rows))


class _Events:
  """A file for TensorBoard, which ends where it cannot be written any more."""

  def __init__(self, folder: Path, step: int, warn: Callable[[str], None]):
    self._folder, self._warn, self._writer = folder, warn, None
    with self._surviving():
      folder.mkdir(exist_ok=True)
      self._writer = EventsWriter(str(folder / 'events'), f'.{os.getpid()}')
      # What an earlier process wrote from this step on is not shown.
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
    self._writer.write_event(Event(wall_time=time.time(), step=step, **content))

  @contextlib.contextmanager
  def _surviving(self):
    """Takes the writer away when it fails."""
    try:
      yield
    except OSError as error:
      writer, self._writer = self._writer, None
      with contextlib.suppress(OSError):
        if writer:
          writer.close()
      self._warn(f'{self._folder} cannot be written: {error.strerror}; TensorBoard goes without '
                 f'until the next start, and {METRICS} has everything')
