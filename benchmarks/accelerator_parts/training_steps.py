"""Training steps of this project: time, utilization and memory, by the shape of the batch."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from accelerator_parts.models import format_error, speed, work_of
from accelerator_parts.timing import time_in_blocks

from transformer.system.machine import set_reproducible_flags

_COMPILERS = 4  # programs compiled in parallel


def measure(
  model: str, shapes: list[list[int]], reproducible: bool = False, kernel: str = ''
) -> Iterator[dict[str, Any]]:
  """Compiles a training step for each shape, [rows, length], then times each; yields rows.

  Args:
    model: the model.
    shapes: rows and length of each batch.
    reproducible: as `config.train.reproducible`.
    kernel: a name in `kernels.KERNELS`, for attention in whole rows; '' is cuDNN.
  """
  if reproducible:
    set_reproducible_flags(os.environ)
  import jax
  from accelerator_parts.fake_cudnn import use_fake_cudnn_without_gpu
  from this_project import packed_batch, parts_of_update

  use_fake_cudnn_without_gpu()
  if kernel:
    from accelerator_parts.kernels import KERNELS

    from transformer.model import attention

    attend = KERNELS[kernel].attend
    attention.fused_attention = lambda *given, project: project(attend(*given), None)

  def prepare(shape):
    """Compiles a training step; returns it with its work, `init`, batch and compilation time."""
    started = time.perf_counter()
    work = work_of(model, *shape)
    init, step = parts_of_update(work)
    batch = packed_batch(work)
    program = step.lower(jax.eval_shape(init), batch).compile()
    return work, init, program, batch, time.perf_counter() - started

  with ThreadPoolExecutor(_COMPILERS) as pool:
    waiting = [pool.submit(prepare, shape) for shape in shapes]
  device = jax.devices()[0].device_kind
  for shape, prepared in zip(shapes, waiting, strict=True):
    row = {'rows': shape[0], 'length': shape[1]}
    try:
      work, init, program, batch, seconds = prepared.result()
      timed = _timed(jax.jit(init)(), program, jax.device_put(batch))
      yield {
        **row,
        **timed,
        **speed(work, timed['seconds'], device),
        'compile_seconds': seconds,
      }
    except Exception as error:  # One shape may not fit into memory.
      yield {**row, 'error': format_error(error)}


def _timed(state, program, batch) -> dict[str, float]:
  """Returns the times of a training step, its memory, and the loss per token after all steps."""
  metrics = None

  def start():
    nonlocal state, metrics
    state, metrics = program(state, batch)

  def wait():
    metrics['loss'].block_until_ready()

  times = time_in_blocks(start, wait)
  memory = program.memory_analysis()
  held = (
    memory.argument_size_in_bytes
    + memory.output_size_in_bytes
    + memory.temp_size_in_bytes
    - memory.alias_size_in_bytes
  )
  return {
    **times,
    'device_bytes': held,
    'loss': float(metrics['loss'] / metrics['weight']),
  }
