"""Checks before the first step that a run fits into device memory."""

import math
import os

import jax
from absl import logging

from transformer.data.batches.training_batches import BatchShape
from transformer.errors import UserError, is_out_of_memory
from transformer.system import processes
from transformer.training.training_setup import CompiledSteps, TrainingSetup

_ADVICE = (
  'set --config.model.remat=True, lower decode.batch_size, or use more devices; a new run may '
  'also lower train.tokens_per_batch, or raise optimizer.num_microbatches'
)


def compile_within_memory(
  setup: TrainingSetup, shape: BatchShape, search_name: str, search
) -> CompiledSteps:
  """Returns the compiled training and evaluation steps.

  Raises `UserError` if training, evaluation or search needs more memory than a device has.

  Args:
    search_name: human-readable name of the search.
    search: the compiled search for the longest validation sentences.
  """
  logging.info('compiling training and evaluation steps (then cached)')
  capacity = processes.minimum(device_memory())
  try:
    compiled = setup.compile(shape)
  except jax.errors.JaxRuntimeError as error:
    if not is_out_of_memory(error):
      raise
    raise UserError(
      f'a training step needs more memory than a device has; {_ADVICE}'
    ) from error
  needs = {
    'training step': _bytes_of(compiled.train_step),
    'evaluation': _bytes_of(compiled.eval_step),
    search_name: _bytes_of(search),
  }
  if None in (capacity, *needs.values()):
    logging.info(
      'memory is not checked: the memory of a device or of the programs is unknown'
    )
    return compiled
  state_bytes = _bytes_on_device(setup.abstract_state)
  # The part of the training state that is not an argument of an evaluation or a search.
  extra_bytes = state_bytes - _bytes_on_device(setup.abstract_state.eval_params)
  # The frozen arrays are already on the device, so its free memory excludes them.
  needs['training step'] -= _bytes_on_device(setup.objective.arguments)
  needs['evaluation'] += extra_bytes
  # If `fsdp` splits parameters, a search has its own gathered copy, in addition to the state.
  needs[search_name] += state_bytes if setup.mesh.shape['fsdp'] > 1 else extra_bytes
  for name, need in needs.items():
    message = (
      f'the {name} needs {_size(need)} on a device that has {_size(capacity)} of memory'
    )
    if need > capacity:
      raise UserError(f'{message}; {_ADVICE}')
    logging.info(message)
  return compiled


def _bytes_on_device(tree) -> int:
  return sum(
    math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
    for leaf in jax.tree.leaves(tree)
  )


def _bytes_of(program) -> int | None:
  """Returns the device memory of a compiled program in bytes; None if JAX does not report it."""
  memory = program.memory_analysis()
  # Donated arguments and outputs share memory.
  return memory and (
    memory.argument_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes
    + memory.temp_size_in_bytes
  )


def device_memory() -> int | None:
  """Returns the free device memory of this process in bytes; None if unknown.

  For a CPU, it is the memory of the machine, divided by the number of JAX's virtual devices.
  """
  device = jax.local_devices()[0]
  stats = device.memory_stats() or {}
  if 'bytes_limit' in stats:
    return stats['bytes_limit'] - stats.get('bytes_in_use', 0)
  if device.platform != 'cpu':
    return None
  machine_bytes = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
  return machine_bytes // jax.local_device_count()


def _size(count: int) -> str:
  return f'{count / 1e9:,.2f} GB' if count >= 1e9 else f'{count / 1e6:,.1f} MB'
