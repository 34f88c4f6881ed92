"""Submits one training run to Slurm, over any number of nodes.

  python launch/slurm.py --nodes=2 --tasks-per-node=8 --sbatch='--gres=gpu:8 --time=24:00:00' \
      -- --config=configs/NAME.py --workdir=DIR [--config.group.key=value …]

What stands after `--` goes to train.py, on every task, which find each other by themselves; it
is checked before anything is submitted. A node's GPUs are dealt out to its tasks. Two minutes
before the time limit, and when the job has to give way to another, the run saves where it is, and
the job queues itself again and goes on from there. DIR and this code must lie where every node
sees them. --dry_run prints the command and the script, and submits nothing.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags, logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from launch import sbatch, training
from launch.training import ROOT, checked, workdir
from transformer import command_line

_NODES = flags.DEFINE_integer('nodes', 1, 'How many nodes.')
_TASKS = flags.DEFINE_integer('tasks-per-node', 1, 'How many processes on each.')
_SBATCH = flags.DEFINE_string('sbatch', '', 'What else sbatch is to be told, as one text.')
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print what would be submitted.')
flags.DEFINE_alias('tasks_per_node', 'tasks-per-node')


def main(arguments: Sequence[str]):
  """Wires flags to a job."""
  command_line.check_at_least(1, _NODES, _TASKS)
  train = [sys.executable, str(ROOT / 'train.py'), *checked(arguments[1:])]
  train = sbatch.with_grace(train)
  script = sbatch.script(shlex.join(train), shlex.quote(workdir(arguments[1:])))
  submission = sbatch.submission('train', _SBATCH.value, f'--nodes={_NODES.value}',
                                 f'--ntasks-per-node={_TASKS.value}')
  if _DRY_RUN.value:
    print(sbatch.as_shell(submission, script))
    return
  logging.info('%s; what it says comes into slurm-JOB.out here', sbatch.submit(submission, script))


if __name__ == '__main__':
  training.run(main)
