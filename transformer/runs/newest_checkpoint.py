"""Records how far the checkpoints of a run reach, so that a run that lost some is noticed."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from absl import logging

from transformer import files
from transformer.errors import UserError
from transformer.runs.metrics_file import last_step
from transformer.runs.run_directory import CHECKPOINTS, EVALUATIONS, INTERRUPTED, METRICS, SAVED
from transformer.training.config import TrainConfig

_STEP = re.compile(r'(\d+)(\.damaged.*)?', re.ASCII)


def record_newest(workdir: Path):
  """Records the step of the newest checkpoint that is there and not damaged.

  A kill before this leaves an earlier step, which demands less than is there.
  """
  step = max(_steps(workdir, damaged=False), default=None)
  if step is not None and step != _recorded(workdir):
    files.write_sealed(workdir / SAVED, {'step': step})


def check_newest(workdir: Path, config: TrainConfig):
  """Refuses to go on with a run that has lost its newest checkpoint, or all checkpoints.

  Checkpoints that were moved aside count as there, since training has told of them.

  Raises:
    UserError: says how the run may go on, or begin anew.
  """
  # In this order, since a run in training may add both.
  recorded, there = _recorded(workdir), max(_steps(workdir, damaged=True), default=-1)
  records = [] if there >= 0 else _signs(workdir, config)
  if recorded is not None and there < recorded:
    records.insert(0, SAVED)
  if not records:
    return
  before = f'a checkpoint of step {recorded}' if recorded else 'checkpoints'
  now, effect = (('there is none', 'begin anew') if there < 0 else
                 (f'the newest is that of step {there}', f'go on from step {there}'))
  raise UserError(f'{workdir} had {before}, and now {now}; restore {workdir / CHECKPOINTS} or '
                  f'mount it again, or choose another --workdir; to {effect}, remove '
                  f'{" and ".join(str(workdir / name) for name in records)}')


def _recorded(workdir: Path) -> int | None:
  """Returns the step in the record; 0 if it is damaged, and None if there is no record."""
  path = workdir / SAVED
  if not path.exists():
    return None
  try:
    return files.read_sealed(path, 'the step of the newest checkpoint')['step']
  except UserError:
    logging.warning('%s is damaged; training writes it again', path)
    return 0


def _steps(workdir: Path, damaged: bool) -> Iterator[int]:
  """Yields the steps of the checkpoints, with or without those that were moved aside."""
  folders = [workdir / CHECKPOINTS, workdir / INTERRUPTED,
             *(workdir.glob(f'{INTERRUPTED}.damaged*') if damaged else ())]
  for folder in folders:
    for name in os.listdir(folder) if folder.is_dir() else ():
      parts = _STEP.fullmatch(name)
      if parts and (damaged or not parts[2]):
        yield int(parts[1])


def _signs(workdir: Path, config: TrainConfig) -> list[str]:
  """Returns what shows that there were checkpoints, also in a run from before there was a record.

  A second save waits until the first is complete.
  """
  seconds = 2 * min(config.checkpoint_every, config.eval_every)
  signs = {METRICS: last_step(workdir / METRICS) > seconds,
           # Of eval.py; training writes its own translations before the checkpoint.
           EVALUATIONS: any((workdir / EVALUATIONS).glob('*.step*'))}
  return [name for name, shows in signs.items() if shows]
