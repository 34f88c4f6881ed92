"""Several processes that run one training run together: how they join, agree and place batches."""

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from absl import logging
from jax.experimental import multihost_utils

from transformer.errors import Preempted, UserError

# What launch/local.py tells a process; where the first one is, JAX reads itself.
COUNT, INDEX = 'JAX_NUM_PROCESSES', 'JAX_PROCESS_ID'
_GONE_SECONDS = 20  # without a sign of life, after which a process is taken for dead
_LEAVE_SECONDS = 60  # that the first process waits for the others at the end


def join():
  """Joins the processes that launch/local.py, Slurm or a TPU slice has started.

  To be called before any device is looked at.

  Raises:
    UserError: nothing says which processes there are.
  """
  given = {name: int(os.environ[variable])
           for name, variable in (('num_processes', COUNT), ('process_id', INDEX))
           if variable in os.environ}
  jax.config.update('jax_enable_preemption_service', False)  # It would take SIGTERM from the run.
  try:
    jax.distributed.initialize(**given, local_device_ids=slurm_gpus(os.environ),
                               heartbeat_timeout_seconds=_GONE_SECONDS,
                               shutdown_timeout_seconds=_LEAVE_SECONDS)
  except ValueError as error:
    raise UserError(f'--distributed needs to be told which processes there are ({error}); start '
                    f'them with launch/local.py, with srun, or on every host of a TPU '
                    f'slice') from error
  if not is_first():
    logging.set_verbosity(logging.WARNING)  # All of them would say the same.


def slurm_gpus(environ: Mapping[str, str]) -> list[int] | None:
  """Which of the NVIDIA GPUs that a process sees are its own, as Slurm has it.

  JAX itself gives one to each process, though there may be more, and counts those of the
  node, though Slurm may show a process none but its own.

  Args:
    environ: the variables of a process.

  Returns:
    Their places among those that are seen; None if it is not Slurm's, or sees none.

  Raises:
    UserError: they cannot be dealt out evenly.
  """
  visible = [each for each in environ.get('CUDA_VISIBLE_DEVICES', '').split(',') if each]
  if not visible or 'SLURM_LOCALID' not in environ:
    return None
  if COUNT in environ:  # launch/local.py has dealt them out.
    return list(range(len(visible)))
  if len(visible) < int(environ.get('SLURM_GPUS_ON_NODE', len(visible))):
    return list(range(len(visible)))
  # Such as 2(x3), on each of 3 nodes.
  tasks = int(re.match(r'\d+', environ['SLURM_STEP_TASKS_PER_NODE'])[0])
  if len(visible) % tasks:
    raise UserError(f'the {len(visible)} GPUs of a node must be dealt out evenly to {tasks} tasks; '
                    f'set --tasks-per-node to a number that divides them')
  share, place = len(visible) // tasks, int(environ['SLURM_LOCALID'])
  return list(range(place * share, (place + 1) * share))


def is_first() -> bool:
  """Whether this is the process that writes; where there is but one, it is."""
  return jax.process_index() == 0


def from_first(make: Callable[[], Any]) -> Any:
  """Calls a function in the first process, and hands what it gives to all of them.

  Args:
    make: gives JSON data; in the other processes it is not called.

  Returns:
    What it gave.

  Raises:
    Preempted: a signal came to the first process meanwhile; in all of them.
    SystemExit: it raised anything else in the first, which that then raises; the others
      end quietly, with status 1.
  """
  if jax.process_count() == 1:
    return make()
  failed, told = None, b''
  if is_first():
    try:
      told = json.dumps({'value': make()}).encode()
    except BaseException as error:  # The others wait, whatever it was.
      failed = error
      told = json.dumps({'failed': str(error) if isinstance(error, Preempted) else None}).encode()
  size = int(multihost_utils.broadcast_one_to_all(np.int32(len(told))))
  content = np.zeros(size, np.uint8)
  content[:len(told)] = np.frombuffer(told, np.uint8)
  answer = json.loads(multihost_utils.broadcast_one_to_all(content).tobytes())
  if failed:
    raise failed
  if 'failed' in answer:
    raise SystemExit(1) if answer['failed'] is None else Preempted(answer['failed'])
  return answer['value']


def fail(error: Exception):
  """Ends this process over what it alone has met, since the others would keep it from leaving."""
  with contextlib.suppress(OSError):  # The log may lie on the same disk.
    print(f'error: {error}', file=sys.stderr, flush=True)
  os._exit(1)  # They notice within `_GONE_SECONDS`, and end too.


def least(number: int | None) -> int | None:
  """The least of what each process gives; None if one of them gives None."""
  if jax.process_count() == 1:
    return number
  found = multihost_utils.process_allgather(np.float64(-1 if number is None else number))
  return None if found.min() < 0 else int(found.min())


def place(arrays, sharding: jax.sharding.NamedSharding):
  """Puts arrays that every process holds whole onto the devices, each its own part.

  Args:
    arrays: a pytree of NumPy arrays, the same in all processes.
    sharding: of each of them.

  Returns:
    The same pytree, of arrays that span all processes; as it was if there is but one,
    since a compiled program places them itself.
  """
  if jax.process_count() == 1:
    return arrays
  return jax.tree.map(lambda array: jax.make_array_from_callback(
      array.shape, sharding, lambda index: array[index]), arrays)


class Wishes:
  """Whether any process wishes to stop, agreed on without one waiting for another.

  Each step a process says what it wishes, and hears what all wished a step before: a sum
  over the devices, which runs beside the step. So all of them stop after the same step.

  Attributes:
    alone: there is one process, and what it wishes need not be agreed on.
  """

  def __init__(self, mesh: jax.sharding.Mesh):
    """Gets ready to speak over a mesh."""
    everywhere = jax.sharding.PartitionSpec(mesh.axis_names)
    self.alone = jax.process_count() == 1
    self._sharding = jax.sharding.NamedSharding(mesh, everywhere)
    self._size = mesh.size
    self._sum = jax.jit(lambda wishes: wishes.sum(), out_shardings=jax.sharding.NamedSharding(
        mesh, jax.sharding.PartitionSpec()))
    self._said = None

  def heard(self, wish: bool) -> bool:
    """Says a wish, and gives what all wished at the last call; of one process, the wish."""
    if self.alone:
      return wish
    said = jax.make_array_from_callback(
        (self._size,), self._sharding, lambda index: np.full(1, wish, np.int32))
    before, self._said = self._said, self._sum(said)
    return before is not None and bool(before)
