r"""Hyperparameter search with Optuna: many short runs, and bad runs are pruned.

  python launch/sweep.py --config=configs/NAME.py --search_space=configs/sweeps/NAME.py \
      --workdir=DIR --trials=N [--workers=M] [--config.group.key=value …]
  python launch/sweep.py … --workers=M --slurm --sbatch='--gres=gpu:1 --time=8:00:00'

A trial is a run of train.py in DIR/trials/NUMBER. The search space samples some settings, as
launch/sweeping/space.py explains; --config sets all others. A trial's value is its best evaluation
on the validation split. Evaluations are reported to the pruner, which may stop the trial after any
but the last. DIR/sweep.html shows all trials and Optuna's plots; DIR/best.py is the best config.

--format=markdown, latex or csv prints the table of trials in this format. --mean_over_seeds prints
the mean and standard deviation over trials that differ only in the seed. The table of a sweep that
is running or has finished needs no other flags than these, --workdir and --storage:

  python launch/sweep.py --workdir=DIR --format=latex

--keep_best=N deletes the checkpoints of finished trials, except the N best so far. All other files
of a trial are kept.

--workers=M runs M trials at a time; each worker gets a fraction of this machine's cores and GPUs.
With --slurm, each worker is a job. On a signal, the trials save checkpoints, and the sweep exits
with status 75. To continue, even after a kill, rerun the same command; the sweep finishes after N
trials in total.

  python launch/sweep.py … --workdir=DIR --storage=postgresql+psycopg://USER@HOST/NAME

stores the trials in any database that Optuna supports, so that the same command can run on many
machines at once. The last component of DIR names the study. The runs stay in DIR. When a worker
dies, another one resumes its trial: from the last checkpoint if the machines share DIR, else from
step 0.
"""

import contextlib
import shlex
import sys
import warnings
from pathlib import Path

from absl import flags, logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from transformer import files
from transformer.cli import shared_flags
from transformer.config import Config
from transformer.errors import UserError
from transformer.runs import run_directory
from transformer.runs.lock import run_lock
from transformer.system import command_line, outputs

try:
  import optuna

  from launch import child_process, sbatch, tables
  from launch.config_file import command_line_overrides
  from launch.sweeping import checkpoints, means, results, space, workers
  from launch.sweeping.saved import open_saved
  from launch.sweeping.storage import check_url, database_errors, without_password
  from launch.sweeping.study import Sweep
except ModuleNotFoundError as missing:
  if missing.name not in ('optuna', 'plotly'):
    raise
  sys.exit(
    f'error: a sweep needs {missing.name}, which is not installed; install it with: '
    f'{shlex.quote(sys.executable)} -m pip install -r launch/requirements.txt'
  )

_CONFIG = shared_flags.define_config()
_SEARCH_SPACE = flags.DEFINE_string(
  'search_space', None, 'The file of the search space.'
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'The directory of the sweep and of its runs.'
)
_TRIALS = flags.DEFINE_integer('trials', None, 'The total number of trials.')
_STORAGE = flags.DEFINE_string(
  'storage',
  None,
  'The URL of a database that workers on several machines share (default: a file in --workdir).',
)
_WORKERS = flags.DEFINE_integer('workers', 1, 'The number of concurrent trials.')
_KEEP_BEST = flags.DEFINE_integer(
  'keep_best',
  None,
  'Keep only the checkpoints of the N best finished trials (default: keep all).',
)
_FORMAT = flags.DEFINE_enum(
  'format',
  'text',
  ('text', *tables.FORMATS),
  'Print the trials as a table for a paper or a spreadsheet.',
)
_MEANS = flags.DEFINE_bool(
  'mean_over_seeds',
  False,
  'Print the mean and the deviation of complete trials that differ only in the seed.',
)
_SLURM = flags.DEFINE_bool('slurm', False, 'Submit each worker as a job.')
_SBATCH = flags.DEFINE_string('sbatch', '', 'More options for sbatch, as one string.')
_DRY_RUN = flags.DEFINE_bool(
  'dry_run', False, 'Print what would be started without starting it.'
)
_WORKER = flags.DEFINE_integer(
  'worker', None, 'The number of this worker; set by the sweep.'
)


def main(_):
  """Reads the flags and runs the sweep or one of its workers, or only prints its table."""
  # The sweep itself reports failed trials and the reason. Optuna's heartbeats are experimental.
  optuna.logging.set_verbosity(optuna.logging.ERROR)
  warnings.simplefilter('ignore', optuna.exceptions.ExperimentalWarning)
  if _STORAGE.value:
    check_url(_STORAGE.value)
  required = (_CONFIG.value, _SEARCH_SPACE.value, _TRIALS.value)
  if _WORKDIR.value and required.count(None) == 3:
    _print_saved(files.as_path(_WORKDIR.value))
    return
  if not _WORKDIR.value or None in required:
    if _WORKDIR.value and run_directory.has_begun(files.as_path(_WORKDIR.value)):
      raise UserError(
        f'--workdir={_WORKDIR.value} holds a single run; pass the directory of a sweep'
      )
    raise UserError(
      'a flag is missing; pass --config=configs/NAME.py, --search_space=configs/sweeps/NAME.py, '
      '--workdir=DIR and --trials=N, or only --workdir=DIR to print the table of its trials'
    )
  shared_flags.check_at_least(1, _TRIALS, _WORKERS)
  if _KEEP_BEST.value is not None:
    shared_flags.check_at_least(1, _KEEP_BEST)
  if _SBATCH.value and not _SLURM.value:
    raise UserError(f'--sbatch={_SBATCH.value} is for jobs; add --slurm, or remove it')
  workdir = files.as_path(_WORKDIR.value)
  outputs.check_folder('workdir', workdir)
  if ':' in str(workdir):  # A colon would end the file name in --config=FILE:ARGUMENT.
    raise UserError(f'--workdir must not contain a colon; got {workdir}')
  config = Config.from_dict(_CONFIG.value.to_dict())
  search_space = space.load(_SEARCH_SPACE.value)
  space.check(search_space, config, command_line_overrides(_CONFIG))
  sweep = Sweep(
    workdir, search_space, config, _TRIALS.value, _STORAGE.value, _KEEP_BEST.value
  )
  if _DRY_RUN.value:
    commands = (
      [sbatch.as_shell(*_slurm(workdir))] if _SLURM.value else map(shlex.join, _local())
    )
    print(*commands, sep='\n')
    return
  with child_process.stop_on_signal(), database_errors(_STORAGE.value):
    if _WORKER.value is None:
      _sweep(sweep)
    else:
      _work(sweep)


def _print_saved(workdir: Path):
  """Prints the table of a saved sweep; raises `UserError` if a flag is only for running one."""
  for flag in (_WORKERS, _KEEP_BEST, _SLURM, _SBATCH, _DRY_RUN, _WORKER):
    if flag.present:
      raise UserError(
        f'--{flag.name} needs --config, --search_space and --trials; add them to run the sweep, '
        f'or remove --{flag.name} to print the table of {workdir}'
      )
  with database_errors(_STORAGE.value):
    sweep = open_saved(workdir, _STORAGE.value)
    print(means.formatted(sweep, _FORMAT.value, _MEANS.value))


def _sweep(sweep: Sweep):
  """Starts or continues the sweep."""
  # A sweep in a database takes no lock, since several machines may work on it.
  with contextlib.nullcontext() if sweep.url else run_lock(sweep.folder):
    sweep.begin()
    checkpoints.delete_all_but_best(sweep)
    if not sweep.num_unfinished():
      results.write(sweep, _command())
    elif _SLURM.value:
      (sweep.folder / workers.LOGS).mkdir(exist_ok=True)
      logging.info('%s', sbatch.submit(*_slurm(sweep.folder)))
      logging.info('%s is updated after each trial', sweep.folder / results.PAGE)
      return
    else:
      workers.run_workers(sweep, _local(), _command())
  print(means.formatted(sweep, _FORMAT.value, _MEANS.value))
  if sweep.best() is None:
    reasons = [
      trial.user_attrs['reason']
      for trial in sweep.started_trials()
      if 'reason' in trial.user_attrs
    ]
    reason = f'all were pruned; {_SEARCH_SPACE.value} needs a pruner() that lets some trials finish'
    if reasons:
      reason = f'the last failed trial reports: {reasons[-1]}'
    raise UserError(f'no trial is complete; {reason}')
  logging.info('%s', results.summary(sweep))
  logging.info(
    '%s shows all trials; train the best one again with: python train.py --config=%s --workdir=…',
    sweep.folder / results.PAGE,
    sweep.folder / results.BEST,
  )


def _work(sweep: Sweep):
  """Runs trials as one worker, on this machine or in a Slurm job."""
  if not _SLURM.value:
    workers.limit_to_share(_WORKER.value, _WORKERS.value)
  sweep.join()
  workers.work(sweep, _SLURM.value, _command())


def _arguments() -> list[str]:
  """Returns the flags that the user typed."""
  # The script of a Slurm job adds --config.train.grace_seconds.
  added = [sbatch.GRACE] if _SLURM.value and _WORKER.value is not None else []
  return [
    argument
    for argument in sys.argv[1:]
    if not argument.startswith(('--worker=', '--dry_run')) and argument not in added
  ]


def _command() -> str:
  """Returns the command in human-readable form, without the password of the database."""
  arguments = _arguments()
  url = _STORAGE.value
  if url:
    arguments = [argument.replace(url, without_password(url)) for argument in arguments]
  return shlex.join(['python', 'launch/sweep.py', *arguments])


def _local() -> list[list[str]]:
  return [
    workers.worker_command(_arguments(), f'--worker={index}')
    for index in range(_WORKERS.value)
  ]


def _slurm(workdir: Path) -> tuple[list[str], str]:
  return workers.slurm_job(
    workdir, _WORKERS.value, _SBATCH.value, workers.worker_command(_arguments())
  )


if __name__ == '__main__':
  command_line.run(main, use_compilation_cache=False)
