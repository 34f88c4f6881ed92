"""What a run tells: a progress bar and log lines to people, JSONL and TensorBoard to machines."""

import contextlib
import errno
import hashlib
import html
import json
import math
import os
import re
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

from transformer.training.run_directory import METRICS

TENSORBOARD = 'tensorboard'
_BINS = 30
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
    self._metrics = _Lines(Path(workdir) / METRICS, step, written or {}, self.warn)
    self._tensorboard = _Events(Path(workdir) / TENSORBOARD, step + 1, self.warn)
    self._bar = tqdm(total=steps, initial=step, unit='step', disable=not sys.stderr.isatty(),
                     dynamic_ncols=True, file=sys.stderr, smoothing=0.05)
    self._shown: dict[str, str] = {}

  def advance(self, step: int):
    """Moves the bar to `step`."""
    self._bar.update(step - self._bar.n)

  def write(self, step: int, values: dict[str, Any], shown: dict[str, str]):
    """Records metrics.

    Args:
      step: updates made.
      values: numbers by name, such as `train/loss`.
      shown: the few that people watch, as text by a short name.
    """
    # JSON has no NaN and no infinity.
    numbers = {name: value if math.isfinite(value) else None for name, value in values.items()}
    self._metrics.write(json.dumps({'step': step, **numbers}) + '\n')
    self._tensorboard.write(step, values)
    self._shown.update(shown)
    self._bar.set_postfix(self._shown)
    if self._bar.disable:
      text = '  '.join(f'{name} {value}' for name, value in shown.items())
      logging.info('step %d/%d  %s', step, self._bar.total, text)

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


class NoReporter:
  """Stands in for `Reporter` in a process that leaves it to another to tell."""

  def advance(self, step: int):
    """Does nothing."""

  def write(self, step: int, values: dict[str, Any], shown: dict[str, str]):
    """Does nothing."""

  def write_samples(self, step: int, samples: Sequence[Sample]):
    """Does nothing."""

  def write_histograms(self, step: int, histograms: Mapping[str, Sequence[float]]):
    """Does nothing."""

  def write_pictures(self, step: int, pictures: Mapping[str, np.ndarray]):
    """Does nothing."""

  def say(self, message: str):
    """Does nothing."""

  def written(self) -> dict[str, Any]:
    """Nothing is written."""
    return {}

  def close(self):
    """Does nothing."""


class _Lines:
  """A JSONL file that only ever holds whole lines, and the lines that wait to be in it."""

  def __init__(self, path: Path, step: int, written: Mapping[str, Any],
               warn: Callable[[str], None]):
    self._path, self._warn, self._warned = path, warn, False
    self._pending = [line.encode() for line in written.get('unwritten', ())]
    self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    self._size, self._digest = written.get('bytes', 0), hashlib.sha256()
    with path.open('rb') as file:
      self._digest.update(file.read(self._size))
    if self._size and self._digest.hexdigest() != written['sha256']:
      self._mend(step)
    os.ftruncate(self._file, self._size)
    self._append()

  def write(self, line: str):
    self._pending.append(line.encode())
    self._append()

  def written(self) -> dict[str, Any]:
    with contextlib.suppress(OSError):
      os.fsync(self._file)
    return {'bytes': self._size, 'sha256': self._digest.hexdigest(),
            'unwritten': [line.decode() for line in self._pending]}

  def close(self):
    self._append()
    os.close(self._file)

  def _mend(self, step: int):
    """Goes on with the lines up to a step that can be read, and leaves a copy of all there was."""
    found = self._path.read_bytes()
    aside = self._path.with_name(f'{self._path.name}.damaged')
    aside.write_bytes(found)
    lines = [line for line in found.splitlines(keepends=True) if _step(line) <= step]
    os.ftruncate(self._file, 0)
    os.write(self._file, b''.join(lines))
    self._size, self._digest = sum(map(len, lines)), hashlib.sha256(b''.join(lines))
    self._warn(f'{self._path} is not as it was written up to step {step}: lines are missing, or '
               f'were changed; it goes on with those that can be read, and {aside.name} holds what '
               f'was found; restore it from a copy if its figures matter')

  def _append(self):
    """Writes what is pending; of a line that does not fit, nothing stays in the file."""
    try:
      while self._pending:
        os.ftruncate(self._file, self._size)
        if os.write(self._file, self._pending[0]) < len(self._pending[0]):
          raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        line = self._pending.pop(0)
        self._digest.update(line)
        self._size += len(line)
      self._warned = False
    except OSError as error:
      with contextlib.suppress(OSError):
        os.ftruncate(self._file, self._size)
      if not self._warned:
        self._warn(f'{self._path} cannot be written: {error.strerror}; the run goes on, and keeps '
                   f'its lines, in checkpoints too, until they can be')
      self._warned = True


def _step(line: bytes) -> float:
  """The step of a line of metrics; infinity if it is none."""
  try:
    return float(json.loads(line)['step']) if line.endswith(b'\n') else math.inf
  except (ValueError, KeyError, TypeError):
    return math.inf


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
