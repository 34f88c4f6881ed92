"""Training with several processes: they join, agree, and place batches on their devices."""

import contextlib
import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from absl import logging
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer.errors import StoppedBySignal, UserError
from transformer.system.machine import cuda_visible_devices

# The environment variables that launch/local.py sets for each process.
COUNT = 'JAX_NUM_PROCESSES'
INDEX = 'JAX_PROCESS_ID'
_HEARTBEAT_SECONDS = 20  # A process without a heartbeat for this time counts as dead.
_JOIN_SECONDS = 300  # A process waits this long for the others to start.
_LEAVE_SECONDS = 60  # At the end, process 0 waits this long for the others.


def initialize():
  """Joins the processes that launch/local.py, Slurm or a TPU slice has started.

  Must be called before any device is used.
  """
  gpus = slurm_gpus(os.environ)
  # This service would handle SIGTERM, which the run handles itself.
  jax.config.update('jax_enable_preemption_service', False)
  # On its own timeout, JAX would abort with a stack trace, which Python cannot catch.
  timer = threading.Timer(
    _JOIN_SECONDS,
    exit_with_error,
    [
      UserError(
        f'the other processes did not start within {_JOIN_SECONDS} seconds; read their output, '
        'then start all again'
      )
    ],
  )
  timer.daemon = True
  timer.start()
  try:
    options = {
      name: int(os.environ[variable])
      for name, variable in (('num_processes', COUNT), ('process_id', INDEX))
      if variable in os.environ
    }
    jax.distributed.initialize(
      **options,
      local_device_ids=gpus,
      initialization_timeout=2 * _JOIN_SECONDS,
      heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
      shutdown_timeout_seconds=_LEAVE_SECONDS,
    )
  except ValueError as error:
    raise UserError(
      f'--distributed could not find the number of processes and their coordinator ({error}); '
      'start them with launch/local.py, with srun, or on every host of a TPU slice'
    ) from error
  finally:
    timer.cancel()
  if not is_first():
    logging.set_verbosity(logging.WARNING)  # All processes would log the same lines.


def slurm_gpus(environ: Mapping[str, str]) -> list[int] | None:
  """Returns the indices of a process's GPUs among the visible ones; None if not under Slurm.

  By default, JAX assigns one GPU to each process, though there may be more. It also numbers the
  GPUs of the whole node, though Slurm may show a process only its own GPUs.
  """
  visible = cuda_visible_devices(environ)
  if not visible or 'SLURM_LOCALID' not in environ:
    return None
  indices = list(range(len(visible)))
  # launch/local.py or Slurm has already divided the GPUs.
  if COUNT in environ or len(visible) < int(environ.get('SLURM_GPUS_ON_NODE', 0)):
    return indices
  # The variable is not set in the sbatch script itself.
  if 'SLURM_STEP_TASKS_PER_NODE' not in environ:
    raise UserError(
      '--distributed is for the processes that srun starts; put srun before the command in the '
      'job script'
    )
  # Such as 2(x3): 2 tasks on each of 3 nodes.
  tasks = int(re.split(r'\D', environ['SLURM_STEP_TASKS_PER_NODE'])[0])
  share, remainder = divmod(len(visible), tasks)
  if remainder:
    raise UserError(
      f'the {len(visible)} GPUs of a node must be divided evenly among {tasks} '
      f'tasks; set --tasks-per-node to a number that divides them'
    )
  return indices[int(environ['SLURM_LOCALID']) * share :][:share]


def is_first() -> bool:
  """Returns whether this is process 0, the only one that writes most files.

  All processes write checkpoints. The process that locks `encoded/KEY` first writes the encoding.
  """
  return jax.process_index() == 0


def broadcast_from_first(make: Callable[[], Any]) -> Any:
  """Calls a function in process 0, and returns its result, JSON data, in all processes.

  If the function raises `StoppedBySignal`, all processes raise it. If it raises another exception,
  process 0 raises it, and the others exit with status 1 and no message.
  """
  if jax.process_count() == 1:
    return make()
  failed = None
  message = b''
  if is_first():
    try:
      message = json.dumps({'value': make()}).encode()
    except BaseException as error:  # The others wait for a message in any case.
      failed = error
      stop = str(error) if isinstance(error, StoppedBySignal) else None
      message = json.dumps({'stop': stop}).encode()
  size = int(multihost_utils.broadcast_one_to_all(np.int32(len(message))))
  content = np.frombuffer(message.ljust(size), np.uint8)
  result = json.loads(multihost_utils.broadcast_one_to_all(content).tobytes())
  if failed:
    raise failed
  if 'stop' in result:
    raise SystemExit(1) if result['stop'] is None else StoppedBySignal(result['stop'])
  return result['value']


def check_same_text(fingerprints: bytes):
  """Raises `UserError` in all processes if the `fingerprints` of their text differ."""
  digests = multihost_utils.process_allgather(
    np.frombuffer(hashlib.sha256(fingerprints).digest(), np.uint8)
  )
  if others := np.flatnonzero((digests != digests[0]).any(axis=1)).tolist():
    raise UserError(
      f'all processes must read the same text; processes {others} differ from process 0; put '
      'it on storage that all hosts share, or make the copies identical'
    )


def exit_with_error(error: Exception):
  """Exits at once after an error that the other processes do not have."""
  with contextlib.suppress(OSError):  # The log may be on the same disk.
    print(f'error: {error}', file=sys.stderr, flush=True)
  os._exit(1)  # The others notice within `_HEARTBEAT_SECONDS`, and exit too.


def minimum(value: int | None) -> int | None:
  """Returns the minimum over all processes; None if any process passes None."""
  smallest = multihost_utils.process_allgather(
    np.float64(-1 if value is None else value)
  ).min()
  return None if smallest < 0 else int(smallest)


def to_global(arrays, sharding: NamedSharding):
  """Returns NumPy arrays as global arrays; each process places its own shards.

  With a single process, returns `arrays` unchanged: its compiled programs move them to the devices.
  """
  if jax.process_count() == 1:
    return arrays
  return jax.tree.map(
    lambda array: jax.make_array_from_callback(
      array.shape, sharding, lambda index: array[index]
    ),
    arrays,
  )


class StopAgreement:
  """Lets all processes stop after the same step, without waiting for each other.

  At each step, a process passes its own request to stop, and learns whether any process passed a
  request at the previous step. A sum over the devices combines the requests, in parallel with the
  training step.
  """

  def __init__(self, mesh: Mesh):
    self._size = mesh.size
    self._sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    everywhere = NamedSharding(mesh, PartitionSpec())
    self._sum = jax.jit(jax.numpy.sum, out_shardings=everywhere)
    self._pending = False

  def should_stop(self, requested: bool) -> bool:
    """Returns whether any process requested a stop at the last call.

    With a single process, returns `requested`.
    """
    if jax.process_count() == 1:
      return requested
    # Each process places its own request on its devices.
    requests = np.full(self._size, requested, np.int32)
    previous = self._pending
    self._pending = self._sum(to_global(requests, self._sharding))
    return bool(previous)
