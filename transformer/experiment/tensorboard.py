"""Writes the numbers and translations of a run for TensorBoard."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tensorboardX import summary
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog

from transformer.config import Config
from transformer.experiment.trackers import Sample

TENSORBOARD = 'tensorboard'


class TensorBoard:
  """An event file for TensorBoard.

  It replaces tensorboardX's `SummaryWriter`, which writes in a separate thread. A full disk ends
  that thread, and its caller then waits forever for free capacity in the queue of the thread.
  """

  def __init__(self, config: Config, workdir: Path, step: int):
    """Opens a new file in a run's directory; TensorBoard hides older events after `step`."""
    folder = workdir / TENSORBOARD
    folder.mkdir(exist_ok=True)
    self._writer = EventsWriter(str(folder / 'events'), f'.{time.time_ns()}')
    self._write(step + 1, session_log=SessionLog(status=SessionLog.START))
    self._writer.flush()

  def log_metrics(self, step: int, values: Mapping[str, float]):
    """Writes numbers by name."""
    for name, value in values.items():
      self._write(step, summary=summary.scalar(name, value))
    self._writer.flush()

  def log_samples(self, step: int, samples: Sequence[Sample]):
    """Writes translations."""
    self._write(step, summary=summary.text('valid/samples', _as_markdown(samples)))
    self._writer.flush()

  def close(self, error: BaseException | None):
    """Closes the file."""
    self._writer.close()

  def _write(self, step: int, **content):
    self._writer.write_event(Event(wall_time=time.time(), step=step, **content))


def _as_markdown(samples: Sequence[Sample]) -> str:
  """Returns a code block for each sample, with a line for each text, so nothing is markup."""
  blocks = ['\n'.join(f'    {text}' for text in sample) for sample in samples]
  return '\n\n---\n\n'.join(blocks)
