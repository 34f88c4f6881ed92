"""What a run tells: a progress bar and log lines to people, JSONL and TensorBoard to machines."""

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from absl import logging
from tensorboardX import SummaryWriter
from tqdm import tqdm

TENSORBOARD = 'tensorboard'


class Reporter:
  """Writes `metrics.jsonl` and `tensorboard/`, and draws a bar at a terminal.

  The JSONL file has one object a line with its `step`; evaluations have lines of
  their own. What was written after the checkpoint that a run resumes from is cut
  off, since it will be written again.
  """

  def __init__(self, workdir: str | os.PathLike, step: int, steps: int):
    """Opens the files.

    Args:
      workdir: the run's directory.
      step: updates already made.
      steps: updates in the run.
    """
    path = Path(workdir) / 'metrics.jsonl'
    _cut_after(path, step)
    self._metrics = path.open('a', encoding='utf-8')
    self._tensorboard = SummaryWriter(str(Path(workdir) / TENSORBOARD), purge_step=step + 1)
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
    self._metrics.flush()
    for name, value in values.items():
      self._tensorboard.add_scalar(name, value, step)
    self._tensorboard.flush()
    self._shown.update(shown)
    self._bar.set_postfix(self._shown)
    if self._bar.disable:
      text = '  '.join(f'{name} {value}' for name, value in shown.items())
      logging.info('step %d/%d  %s', step, self._bar.total, text)

  def say(self, message: str):
    """Tells people something, without breaking the bar."""
    if self._bar.disable:
      logging.info('%s', message)
    else:
      self._bar.write(message, file=sys.stderr)

  def close(self):
    """Closes the files and leaves the bar as it stands."""
    self._bar.close()
    self._metrics.close()
    self._tensorboard.close()


def _cut_after(path: Path, step: int):
  """Truncates a JSONL file before its first line of a later step, or that is torn."""
  if not path.exists():
    return
  kept = 0
  with path.open('rb') as lines:
    for line in lines:
      try:
        if not line.endswith(b'\n') or json.loads(line)['step'] > step:
          break
      except (ValueError, KeyError, TypeError):
        break
      kept += len(line)
  os.truncate(path, kept)
