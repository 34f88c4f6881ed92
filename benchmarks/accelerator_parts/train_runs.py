"""Trains packed runs one after another, within the time limit."""

import dataclasses
import os
import tempfile
import time
from pathlib import Path

from accelerator_parts import subprocesses
from accelerator_parts.packed_runs import (
  REPORT,
  SITE,
  PlannedRun,
  collect_weights,
  planned_runs,
)

from transformer import files
from transformer.config import Config
from transformer.errors import UserError
from transformer.runs import resuming
from transformer.runs.run_directory import RESULTS
from transformer.system.machine import enable_compilation_cache, set_reproducible_flags
from transformer.system.signals import Signals

# A later call on the same machine resumes the runs in this folder.
_WORKDIRS = Path(tempfile.gettempdir(), 'accelerator_runs')
_GRACE = 30.0  # seconds for saving a stopped run
_PACKING = 90.0  # seconds for packing the weights
_SCORED = 'scored; see trained/eval'
_TOP = Path(__file__).resolve().parents[2]


def train_all(folder: Path, out: Path, deadline: float, commit: str):
  """Trains the runs of a packed folder, scores finished runs, then writes the weights to `out`.

  Args:
    folder: from `packed_runs.pack`.
    out: the folder for the weights and `report.json`.
    deadline: the end of this call, as a value of `time.monotonic`.
    commit: the commit of this code.
  """
  runs, report = planned_runs(folder), {}
  site = str((folder / SITE).resolve())
  os.environ['PYTHONPATH'] = os.pathsep.join(
    filter(None, (os.environ.get('PYTHONPATH'), str(_TOP), site))
  )
  for run in runs:
    left = deadline - time.monotonic() - _GRACE - _PACKING
    if left > 0:
      report[run.name] = _train(run, folder, left)
      print(f'{run.name}: {report[run.name]}', flush=True)
  os.environ['JAX_PLATFORMS'] = 'cpu'
  brought = collect_weights(runs, _WORKDIRS, out)
  files.write_json(
    out / REPORT,
    {
      **subprocesses.describe(commit),
      'runs': {
        run.name: {
          **report.get(run.name, {'training': 'left for another call'}),
          'weights': brought[run.name],
        }
        for run in runs
      },
    },
  )


def _train(run: PlannedRun, folder: Path, seconds: float) -> dict[str, str | float]:
  """Trains a run, or resumes it, and scores its test split; returns what happened, as text."""
  started, workdir = time.monotonic(), _WORKDIRS / run.name
  workdir.parent.mkdir(parents=True, exist_ok=True)
  log = workdir.with_suffix('.log')
  status = subprocesses.run(
    subprocesses.python(
      str(_TOP / 'benchmarks/accelerator.py'),
      f'--train={folder}',
      f'--section={run.name}',
      f'--out={workdir}',
    ),
    log,
    seconds,
    _GRACE,
  )
  trained = {'seconds': round(time.monotonic() - started, 1)}
  if status:
    return {'training': subprocesses.last_line(log), **trained}
  if status is None:
    return {'training': 'it was killed', **trained}
  if not run.config['data']['test']:
    return {'training': 'done', **trained}
  if (workdir / RESULTS).is_dir():
    return {'training': 'done', **trained, 'test': _SCORED}
  left = seconds - (time.monotonic() - started)
  log = workdir.with_suffix('.eval.log')
  status = subprocesses.run(
    subprocesses.python(
      str(_TOP / 'eval.py'),
      f'--workdir={workdir}',
      f'--checkpoint={run.checkpoint}',
      f'--average={run.average}',
      f'--data_dir={folder / run.config["data"]["dir"]}',
    ),
    log,
    max(left, 1.0),
  )
  if status is None:
    return {'training': 'done', **trained, 'test': 'left for another call'}
  return {
    'training': 'done',
    **trained,
    'test': subprocesses.last_line(log) if status else _SCORED,
  }


def train_here(folder: Path, name: str, workdir: Path):
  """Trains a run of a packed folder in this process, as `train.py` does.

  Raises:
    UserError: the run does not exist, or cannot be trained here.
    StoppedBySignal: a signal stopped the run; the next call resumes it.
  """
  run = {plan.name: plan for plan in planned_runs(folder)}.get(name)
  if run is None:
    raise UserError(f'{folder} has no run {name!r}')
  config = Config.from_dict(run.config)
  config = dataclasses.replace(
    config,
    data=dataclasses.replace(
      config.data, dir=str((folder / config.data.dir).resolve())
    ),
  )
  resuming.check_workdir(workdir, config)
  enable_compilation_cache(os.environ)
  if config.train.reproducible:
    set_reproducible_flags(os.environ)
  with Signals(_GRACE) as signals:
    from transformer.experiment.train_loop import train_run

    train_run(config, workdir, signals)
