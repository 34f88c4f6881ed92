"""Starts a Slurm with this machine as its node; needs root, slurm-wlm and munge.

apt-get install --no-install-recommends slurm-wlm munge
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ('munged', 'slurmctld', 'slurmd', 'sbatch', 'srun')
CPUS = 8  # The CPUs that the node claims to have, so that several jobs fit.
# A job in `high` preempts one in `low`, which is asked to stop and queued again.
CONFIG = """
ClusterName=test
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=15
CredType=cred/munge
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=30
JobRequeue=1
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=localhost CPUs={cpus} State=UNKNOWN
PartitionName=low Nodes={host} Default=YES PriorityTier=1 GraceTime=30 State=UP
PartitionName=high Nodes={host} PriorityTier=9 PreemptMode=OFF State=UP
"""


def is_installed() -> bool:
  """Returns whether a node can be started here."""
  path = os.pathsep.join((os.environ.get('PATH', ''), '/usr/sbin', '/sbin'))
  return os.getuid() == 0 and all(shutil.which(name, path=path) for name in PROGRAMS)


@contextlib.contextmanager
def slurm_node(folder: Path) -> Iterator[dict[str, str]]:
  """Starts a Slurm, and yields the environment in which its commands find it."""
  ports = []
  with contextlib.ExitStack() as stack:
    for _ in range(2):
      probe = stack.enter_context(socket.socket())
      probe.bind(('', 0))
      ports.append(probe.getsockname()[1])
  for name in ('munge', 'state', 'spool'):
    (folder / name).mkdir()
  key = folder / 'munge' / 'key'
  key.write_bytes(os.urandom(1024))
  key.chmod(0o600)
  (folder / 'munge').chmod(0o755)
  config = folder / 'slurm.conf'
  config.write_text(
    CONFIG.format(
      host=socket.gethostname().split('.')[0],
      folder=folder,
      controller_port=ports[0],
      node_port=ports[1],
      cpus=CPUS,
    )
  )
  environment = {
    **os.environ,
    'SLURM_CONF': str(config),
    'PATH': os.pathsep.join((os.environ['PATH'], '/usr/sbin', '/sbin')),
  }
  munged = [
    'munged',
    '--foreground',
    '--force',
    f'--socket={folder}/munge/socket',
    f'--key-file={key}',
    f'--pid-file={folder}/munge/pid',
    f'--seed-file={folder}/munge/seed',
    f'--log-file={folder}/munge/log',
  ]
  daemons = []
  try:
    for command, there in (
      (munged, folder / 'munge' / 'socket'),
      (['slurmctld', '-D'], None),
      (['slurmd', '-D'], None),
    ):
      with (folder / f'{command[0]}.out').open('wb') as file:
        daemons.append(
          subprocess.Popen(
            command, env=environment, stdout=file, stderr=file, start_new_session=True
          )
        )
      while there and not there.exists():
        time.sleep(0.05)
    deadline = time.monotonic() + 60
    while (
      'idle'
      not in subprocess.run(
        ['sinfo', '--noheader', '--format=%T'],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
      ).stdout
    ):
      if time.monotonic() > deadline:
        raise RuntimeError(f'Slurm did not come up; see the logs in {folder}')
      time.sleep(0.1)
    yield environment
  finally:
    subprocess.run(['scancel', '--user=root'], env=environment, check=False)
    for daemon in reversed(daemons):
      daemon.send_signal(signal.SIGTERM)
      try:
        daemon.wait(20)
      except subprocess.TimeoutExpired:
        daemon.kill()
