"""Checks that a run is resumed with the settings, data and parameters that it began with.

Imports no JAX, so that an invalid setting is reported at once.
"""

from collections.abc import Mapping
from pathlib import Path

from transformer import plugins
from transformer.config import Config, flatten
from transformer.errors import UserError, short_repr
from transformer.runs.metrics_file import read_metrics
from transformer.runs.run_directory import (
  CHECKPOINTS,
  CONFIG,
  METRICS,
  WEIGHTS_ONLY,
  check_path,
  has_begun,
  is_unused,
  read_config,
  read_record,
)
from transformer.training.config import SCHEDULES, STANDARD_METRICS

# Settings that may change on resume. They affect the length of a run, its logs, its evaluations and
# its devices. Training steps equal those with the earlier settings, up to rounding (mesh and remat)
# and up to the steps skipped under train.max_consecutive_nonfinite.
_MAY_DIFFER = (
  'data.dir',
  'model.remat',
  'train.steps',
  'train.log_every',
  'train.eval_every',
  'train.checkpoint_every',
  'train.keep',
  'train.patience',
  'train.max_consecutive_nonfinite',
  'train.grace_seconds',
  'train.valid_metric',
  'train.trackers',
  'train.init_from',
  'train.objective_runs',
  'decode.beam_size',
  'decode.alpha',
  'decode.batch_size',
  'mesh.data',
  'mesh.fsdp',
  'mesh.tensor',
)


def check_workdir(workdir: Path, config: Config):
  """Raises `UserError` if a directory holds a run that cannot resume, or unrelated files."""
  check_path(workdir)
  if not (workdir / CONFIG).exists():
    if workdir.exists() and not is_unused(workdir):
      raise UserError(
        f'{workdir} is not empty and holds no run; choose a different --workdir'
      )
    return
  changed_settings(workdir, config)
  if has_begun(workdir) and WEIGHTS_ONLY in read_record(workdir):
    raise UserError(
      f'{workdir} has no optimizer state to resume from; start a new run with --workdir=NEW '
      f'--config.train.init_from={workdir}'
    )
  check_checkpoints_exist(workdir, read_config(workdir).train.checkpoint_every)


def changed_settings(workdir: Path, config: Config) -> dict:
  """Returns the result of `check_same_settings` for a directory's run; {} without a run."""
  if not (workdir / CONFIG).exists():
    return {}
  old = flatten(read_config(workdir).to_dict())
  return check_same_settings(workdir, old, flatten(config.to_dict()))


def check_same_settings(workdir: Path, old: Mapping, new: Mapping) -> dict:
  """Returns the settings that have changed, by dotted name, each with `from` and `to`.

  `old` and `new` are all settings by dotted name. Raises `UserError` if a changed setting would
  alter the training steps of the run.
  """
  best_by = new['train.best_by'].rpartition('/')[2]
  may_not = {
    'train.steps': SCHEDULES.get(plugins.name_of(new['optimizer.schedule']), True),
    # It may name another folder, but cannot be added or removed.
    'train.init_from': not (old['train.init_from'] and new['train.init_from']),
    # One of its scores may decide which step is the best.
    'train.valid_metric': best_by not in ('', *STANDARD_METRICS),
    # Skipped steps must still be counted.
    'train.max_consecutive_nonfinite': not new['train.max_consecutive_nonfinite'],
  }
  changes = {
    name: {'from': old[name], 'to': new[name]}
    for name in sorted(new)
    if old[name] != new[name]
  }
  differences = [
    f'{name} was {short_repr(change["from"])}, is now {short_repr(change["to"])}'
    for name, change in changes.items()
    if name not in _MAY_DIFFER or may_not.get(name)
  ]
  if differences:
    raise UserError(
      f'{workdir} has a run with a different configuration: {"; ".join(differences)}; choose '
      'a different --workdir, or the same settings; to start a new run from these weights: '
      f'--workdir=NEW --config.train.init_from={workdir}'
    )
  return changes


def check_checkpoints_exist(workdir: Path, every: int):
  """Raises `UserError` if a run has trained past its second checkpoint and has no checkpoint.

  `every` is `train.checkpoint_every`. The first checkpoint may be missing because of a kill.
  """
  reached = max((row['step'] for row in read_metrics(workdir / METRICS)), default=0)
  if reached > 2 * every and not any((workdir / CHECKPOINTS).glob('*')):
    raise UserError(
      f'{workdir} was trained to step {reached}, but has no checkpoint; restore or remount '
      f'{workdir / CHECKPOINTS}, or choose a different --workdir; to start over, remove '
      f'{workdir / METRICS}'
    )


def check_same_start(workdir: Path, facts: Mapping):
  """Raises `UserError` if a run began with different data, initial parameters or frozen arrays.

  `facts` has `data`, `origin` and `frozen` as in `run.json`; an `origin` of None is not checked.
  """
  record = read_record(workdir)
  old = record['data']
  data = facts['data']
  changed = [name for name in {*old, *data} if old.get(name) != data.get(name)]
  if changed:
    raise UserError(
      f'{workdir} was trained on different data: {", ".join(sorted(changed))} changed '
      f'since; choose a different --workdir, or restore the data'
    )
  for setting, name in (
    ('train.init_from', 'origin'),
    ('train.objective_runs', 'frozen'),
  ):
    if facts[name] is not None and record[name] != facts[name]:
      raise UserError(
        f'{workdir} was started with a different {setting}, or the best checkpoint of a run that '
        'it names has changed since; to use the current weights, choose a different --workdir'
      )
