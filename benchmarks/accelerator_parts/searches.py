"""Greedy and beam search of this project, by the number of sentences in a batch."""

import dataclasses
import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from accelerator_parts.models import format_error, work_of
from accelerator_parts.timing import time_in_blocks

_COMPILERS = 4  # programs compiled in parallel


def measure(model: str, length: int, batches: list[int]) -> Iterator[dict[str, Any]]:
  """Yields a row for each search and batch: random weights, `length` tokens in and out."""
  import jax
  import numpy as np
  from accelerator_parts.fake_cudnn import use_fake_cudnn_without_gpu
  from this_project import random_params, whole_search

  from transformer.decoding.config import DecodeOptions
  from transformer.model.transformer import Transformer

  use_fake_cudnn_without_gpu()
  work = work_of(model, 1, length)
  # The reference has the same weights, and initializing them needs no kernel.
  params = random_params(
    work._replace(model=dataclasses.replace(work.model, attention='reference'))
  )
  transformer = Transformer(work.model, work.vocabulary_size)

  def prepare(beams, sentences):
    """Returns a compiled search with its arguments."""
    search = whole_search(
      transformer,
      DecodeOptions(
        beam_size=beams, alpha=0.6 if beams > 1 else 0.0, max_extra_length=1
      ),
    )
    given = jax.device_put(
      (work._replace(rows=sentences).sources(), np.full(sentences, length, np.int32))
    )
    return functools.partial(search.lower(params, *given).compile(), params, *given)

  with ThreadPoolExecutor(_COMPILERS) as pool:
    waiting = [
      (beams, sentences, pool.submit(prepare, beams, sentences))
      for beams in (1, 4)
      for sentences in batches
    ]
  for beams, sentences, prepared in waiting:
    row = {'beams': beams, 'sentences': sentences}
    try:
      timed, tokens = _timed(prepared.result())
      yield {
        **row,
        **timed,
        'tokens_per_second': tokens / timed['seconds'],
        'sentences_per_second': sentences / timed['seconds'],
      }
    except Exception as error:  # One batch may not fit into memory.
      yield {**row, 'error': format_error(error)}


def _timed(search) -> tuple[dict[str, float], int]:
  """Returns the times of a search, and the number of generated tokens."""
  best = None

  def start():
    nonlocal best
    best = search()

  times = time_in_blocks(start, lambda: best.lengths.block_until_ready(), most=8)
  return times, int(best.lengths[:, 0].sum())
