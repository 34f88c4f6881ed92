"""Finds before the first step whether a run fits into the devices' memory."""

import bisect
import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import jax
from absl import logging

from transformer.errors import UserError, is_out_of_memory
from transformer.system import processes
from transformer.system.machine import free_memory
from transformer.training.mesh import row_devices
from transformer.training.update import Update


def compile_within_memory(
  update: Update, shape: tuple[int, int, int], search: tuple[str, Any], begun: bool
) -> Update:
  """Compiles an update, and checks that the devices have memory for a run with it.

  Args:
    shape: rows, source positions and target positions of a batch.
    search: a name for people, and the compiled search of the longest validation sentences.
    begun: whether the run has begun, so that `train.fit_memory` allows no smaller batches.

  Returns the compiled update; its config has the `train.tokens_per_batch` that fits.
  """
  rows, source_length, length = shape
  logging.info('compiling the update and the evaluation, most of which the next start finds')
  capacity = processes.least(device_memory())

  @functools.cache
  def with_rows(rows: int) -> tuple[Update | None, float | None]:
    return _compile(update, (rows, source_length, length), capacity)

  (compiled, need), searching = with_rows(rows), _bytes_of(search[1])
  if None in (capacity, need, searching):
    logging.info('the memory of a device or of the programs is not known here, so not checked')
    return compiled
  # Where `fsdp` splits parameters, a search has its own copy of the whole, beside the state.
  searching += (
    _bytes_on_device(update.state)
    if update.mesh.shape['fsdp'] > 1
    else _bytes_beside_parameters(update)
  )
  logging.info(
    'memory on a device, which has %s: update and evaluation, %d rows of %d + %d '
    'tokens: %s; %s: %s',
    _size(capacity),
    rows,
    source_length,
    length,
    _size(need),
    search[0],
    _size(searching),
  )
  has = f'on a device that has {_size(capacity)} of memory'
  if searching > capacity:
    raise UserError(
      f'the {search[0]}, needs {_size(searching)} {has}; lower decode.batch_size, or '
      f'take a smaller model'
    )
  if need <= capacity:
    return compiled
  wanted = f'train.tokens_per_batch={rows * length} needs {_size(need)} {has}'
  unit = update.config.optimizer.accumulate * row_devices(update.mesh)
  if update.config.train.fit_memory and not begun:
    fitting = unit * bisect.bisect_left(
      range(1, -(-rows // unit)), True, key=lambda count: with_rows(count * unit)[1] > capacity
    )
    if fitting:
      logging.info(
        '%s; the run takes train.tokens_per_batch=%d, and keeps it', wanted, fitting * length
      )
      train = dataclasses.replace(update.config.train, tokens_per_batch=fitting * length)
      return dataclasses.replace(
        with_rows(fitting)[0], config=dataclasses.replace(update.config, train=train)
      )
    wanted += f', and not even {unit * length} fits'
  more = '' if begun else ', raise optimizer.accumulate, take a smaller model'
  if not (begun or update.config.train.fit_memory):
    more += ', or let --config.train.fit_memory=True find the largest batch that fits'
  raise UserError(f'{wanted}; set --config.model.remat=True, use more devices{more}')


def _compile(
  update: Update, shape: tuple[int, int, int], capacity: int | None
) -> tuple[Update | None, float | None]:
  """Returns an update for batches of a shape, and the bytes that a device needs for a run with it.

  Either is None where the compiler does not give it.
  """
  try:
    compiled = update.compiled(shape)
  except jax.errors.JaxRuntimeError as error:
    if capacity is None or not is_out_of_memory(error):
      raise
    return None, math.inf
  updating, evaluating = _bytes_of(compiled.train_step), _bytes_of(compiled.eval_step)
  if None in (updating, evaluating):
    return compiled, None
  # The frozen arrays are on the device already, and so not in its free memory.
  return compiled, max(
    updating - _bytes_on_device(update.objective.arguments),
    evaluating + _bytes_beside_parameters(update),
  )


def _bytes_beside_parameters(update: Update) -> int:
  """Returns the bytes of the training state that are no arguments of an evaluation."""
  return _bytes_on_device(update.state) - _bytes_on_device(update.state.best_params)


def _bytes_on_device(tree) -> int:
  return sum(
    math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
    for leaf in jax.tree.leaves(tree)
  )


def _bytes_of(program) -> int | None:
  """Returns the bytes that a device needs to run a compiled program; None if it does not tell."""
  memory = program.memory_analysis()
  # Some outputs take the memory of arguments.
  return memory and (
    memory.argument_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes
    + memory.temp_size_in_bytes
  )


def device_memory(root: Path = Path('/')) -> int | None:
  """Returns the bytes that a device has free for this process; None if it cannot be known.

  For a CPU, these are the machine's memory or the limit of this process's control groups, without
  what the process uses, divided among JAX's virtual devices. `root` has /proc and /sys.
  """
  device = jax.local_devices()[0]
  stats = device.memory_stats() or {}
  if 'bytes_limit' in stats:
    return stats['bytes_limit'] - stats.get('bytes_in_use', 0)
  if device.platform != 'cpu':
    return None
  free = free_memory(root)
  return None if free is None else free // jax.local_device_count()


def _size(count: float) -> str:
  if count == math.inf:
    return 'more than there is'
  return f'{count / 1e9:,.2f} GB' if count >= 1e9 else f'{count / 1e6:,.1f} MB'
