"""The same training steps in PyTorch, with its fused attention and dropout as in the paper."""

import gc
from collections.abc import Iterator
from typing import Any

from accelerator_parts.models import format_error, speed, work_of
from accelerator_parts.timing import time_in_blocks


def measure(
  model: str, shapes: list[list[int]], compiled: bool
) -> Iterator[dict[str, Any]]:
  """Yields a row for each shape, [rows, length]; a row of the batch is one sentence pair."""
  import torch
  from baselines.pytorch import make_step

  on_a_gpu = torch.cuda.is_available()
  device = torch.cuda.get_device_name() if on_a_gpu else 'cpu'
  for shape in shapes:
    row = {'rows': shape[0], 'length': shape[1]}
    # Without this, the program of the second shape would have dynamic shapes.
    torch.compiler.reset()
    if on_a_gpu:
      torch.cuda.empty_cache()
      torch.cuda.reset_peak_memory_stats()
    try:
      work = work_of(model, *shape)
      timed = _timed(
        make_step(work, compiled, paper_dropout=True),
        torch.cuda.synchronize if on_a_gpu else lambda: None,
      )
      memory = {'device_bytes': torch.cuda.max_memory_allocated()} if on_a_gpu else {}
      yield {**row, **timed, **speed(work, timed['seconds'], device), **memory}
    except Exception as error:  # One shape may not fit into memory.
      yield {**row, 'error': format_error(error)}
    gc.collect()


def _timed(step, wait) -> dict[str, float]:
  """Returns the times of a training step, and the loss per token after all steps."""
  loss = None

  def start():
    nonlocal loss
    loss = step()

  return {**time_in_blocks(start, wait), 'loss': float(loss)}
