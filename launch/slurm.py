r"""Submits a training run to Slurm, on one or more nodes.

  python launch/slurm.py --nodes=2 --tasks-per-node=8 --sbatch='--gres=gpu:8 --time=24:00:00' \
      -- --config=configs/NAME.py --workdir=DIR [--config.group.key=value …]

The arguments after `--` go to train.py; they are checked before anything is submitted. Each task
runs train.py, and the tasks find each other automatically. A node's GPUs are split among its tasks.
The run saves a checkpoint two minutes before the time limit, and when Slurm preempts the job. The
job then requeues itself and resumes the run. Every node must have access to DIR and this code.
--dry_run prints the command and the script, and submits nothing. To estimate the memory and time of
a training step beforehand, on any machine, use `python -m benchmarks.gpu_costs`
(docs/launching.md).
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags, logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from launch import sbatch
from launch.train_arguments import ROOT, distributed_arguments, run_launcher
from transformer.cli import shared_flags
from transformer.errors import UserError
from transformer.system import command_line

_NODES = flags.DEFINE_integer('nodes', 1, 'The number of nodes.')
_TASKS = flags.DEFINE_integer('tasks-per-node', 1, 'The number of processes per node.')
_SBATCH = flags.DEFINE_string('sbatch', '', 'More options for sbatch, as one string.')
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print the job without submitting it.')
flags.DEFINE_alias('tasks_per_node', 'tasks-per-node')


def main(arguments: Sequence[str]):
  """Reads the flags and submits a job."""
  shared_flags.check_at_least(1, _NODES, _TASKS)
  gpus = sbatch.requested_gpus(_SBATCH.value, _NODES.value, _TASKS.value)
  processes = _NODES.value * _TASKS.value
  if gpus and gpus % processes:
    raise UserError(
      f'the {gpus} GPUs of the job must be divided evenly among --nodes × '
      f'--tasks-per-node = {processes} processes; change one of these numbers'
    )
  folder = command_line.workdir(arguments[1:])
  # Without arguments, `distributed_arguments` raises an error.
  if folder is None and len(arguments) > 1:
    raise UserError(
      '--workdir is missing; pass --workdir=DIR after --, not in a file of flags'
    )
  # Standard output is reserved for the script of --dry_run.
  train = sbatch.with_grace(
    [
      sys.executable,
      str(ROOT / 'train.py'),
      *distributed_arguments(
        arguments[1:],
        *(
          [f'--check_devices={gpus}', f'--check_processes={processes}'] if gpus else []
        ),
        summary=sys.stderr,
      ),
    ]
  )
  script = sbatch.script(shlex.join(train), shlex.quote(folder))
  submission = sbatch.submission(
    'train',
    _SBATCH.value,
    f'--nodes={_NODES.value}',
    f'--ntasks-per-node={_TASKS.value}',
  )
  if _DRY_RUN.value:
    print(sbatch.as_shell(submission, script))
    return
  logging.info(
    '%s; its output goes to slurm-JOB.out here', sbatch.submit(submission, script)
  )


if __name__ == '__main__':
  run_launcher(main)
