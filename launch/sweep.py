r"""Searches for a better config: many short runs, the bad ones ended early, by Optuna.

  python launch/sweep.py --config=configs/NAME.py --sweep=configs/sweeps/NAME.py --workdir=DIR \
      --trials=N [--workers=M] [--config.group.key=value …]
  python launch/sweep.py … --workers=M --slurm --sbatch='--gres=gpu:1 --time=8:00:00'

A trial is a run of train.py in DIR/trials/NUMBER, with the settings of --config and what the
search space draws; how a space is written stands in launch/sweeping/space.py. It is measured by
its best evaluation on the validation split, and pruned by those before. DIR/sweep.html has all
trials and Optuna's plots, and DIR/best.py is the best config, for train.py.

--workers=M runs M trials at a time, each on its part of this machine's cores, and of its GPUs;
with --slurm each worker is a job. A signal makes the trials save where they are, and the sweep
exits with status 75. Started again, also after a kill, it goes on with them, up to N trials in all.
"""

import shlex
import sys
from pathlib import Path

from absl import flags, logging
from ml_collections import ConfigDict, config_flags

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from transformer import command_line
from transformer.config import Config, flatten
from transformer.errors import UserError
from transformer.training.lock import RunLock

try:
  import optuna

  from launch import sbatch
  from launch.sweeping import results, space, workers
  from launch.sweeping.journal import Sweep
  from launch.sweeping.processes import Stop
except ModuleNotFoundError as missing:
  if missing.name not in ('optuna', 'plotly'):
    raise
  sys.exit(f'error: a sweep needs {missing.name}, which is not installed; install it with: '
           f'{shlex.quote(sys.executable)} -m pip install -r launch/requirements.txt')

_CONFIG = command_line.define_config()
_SWEEP = flags.DEFINE_string('sweep', None, 'The file of the search space.')
_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the sweep and of its runs.')
_TRIALS = flags.DEFINE_integer('trials', None, 'How many trials there are to be in all.')
_WORKERS = flags.DEFINE_integer('workers', 1, 'How many run at a time.')
_SLURM = flags.DEFINE_bool('slurm', False, 'Submit each worker as a job.')
_SBATCH = flags.DEFINE_string('sbatch', '', 'What else sbatch is to be told, as one text.')
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print what would be started, and start nothing.')
_WORKER = flags.DEFINE_integer('worker', None, 'Be this one of the workers of a sweep that was '
                               'begun; the command itself sets it.')


def main(_):
  """Wires flags to the sweep, or to one of its workers."""
  if _CONFIG.value is None or not _SWEEP.value or not _WORKDIR.value or _TRIALS.value is None:
    raise UserError('--config=configs/NAME.py, --sweep=configs/sweeps/NAME.py, --workdir=DIR and '
                    '--trials=N are all needed')
  command_line.check_at_least(1, _TRIALS, _WORKERS)
  if _SBATCH.value and not _SLURM.value:
    raise UserError(f'--sbatch={_SBATCH.value} is for jobs; add --slurm, or leave it out')
  optuna.logging.set_verbosity(optuna.logging.WARNING)
  workdir = Path(_WORKDIR.value).expanduser()
  command_line.check_folder('workdir', workdir)
  if ':' in str(workdir):  # What follows one in the name of a config's file is its argument.
    raise UserError(f'--workdir must have no colon in it; got {workdir}')
  config = Config.from_dict(_CONFIG.value.to_dict())
  searched = space.load(_SWEEP.value)
  overrides = config_flags.get_override_values(flags.FLAGS['config'])
  space.check(searched, config, flatten({
      name: value.to_dict() if isinstance(value, ConfigDict) else value
      for name, value in overrides.items()}))
  sweep = Sweep(workdir, searched, config, _TRIALS.value)
  if _WORKER.value is not None:
    _work(sweep)
  elif _DRY_RUN.value:
    if _SLURM.value:
      print(sbatch.as_shell(*_slurm(workdir)))
    else:
      for command in _local():
        print(shlex.join(command))
  else:
    _sweep(sweep, workdir)


def _sweep(sweep: Sweep, workdir: Path):
  """Begins the sweep, or goes on with it."""
  stop = Stop()
  with RunLock(workdir):
    sweep.begin()
    if not sweep.unfinished():
      results.write(sweep, _command())
    elif _SLURM.value:
      (workdir / workers.LOGS).mkdir(exist_ok=True)
      logging.info('%s', sbatch.submit(*_slurm(workdir)))
      logging.info('%s is written anew after each trial', workdir / results.PAGE)
      return
    else:
      workers.run_workers(sweep, _local(), stop, _command())
  print(results.in_columns(results.table(sweep)))
  if sweep.best() is None:
    reasons = [trial.user_attrs['reason'] for trial in sweep.all() if 'reason' in trial.user_attrs]
    raise UserError('no trial is complete; ' + (
        f'the last that failed says: {reasons[-1]}' if reasons else
        f'all were pruned; {_SWEEP.value} should have a pruner() that lets some end'))
  logging.info('%s', results.summary(sweep))
  logging.info('%s shows them; train it again with: python train.py --config=%s --workdir=…',
               workdir / results.PAGE, workdir / results.BEST)


def _work(sweep: Sweep):
  """Is one worker, of this machine or of Slurm's."""
  stop = Stop()
  if not _SLURM.value:
    workers.take_share(_WORKER.value, _WORKERS.value)
  sweep.join()
  if _SLURM.value:
    workers.work(sweep, stop, alone=True, after=lambda: results.write(sweep, _command()))
  else:
    workers.work(sweep, stop, alone=False)


def _arguments() -> list[str]:
  """What a person has typed to start the sweep."""
  return [each for each in sys.argv[1:]
          if not each.startswith(('--worker=', '--dry_run')) and each != sbatch.GRACE]


def _command() -> str:
  return shlex.join(['python', 'launch/sweep.py', *_arguments()])


def _local() -> list[list[str]]:
  return [workers.worker_command(_arguments(), f'--worker={number}')
          for number in range(_WORKERS.value)]


def _slurm(workdir: Path) -> tuple[list[str], str]:
  return workers.slurm_job(workdir, _WORKERS.value, _SBATCH.value,
                           workers.worker_command(_arguments()))


if __name__ == '__main__':
  command_line.run(main)
