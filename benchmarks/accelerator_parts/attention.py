"""cuDNN's attention versus the reference: values, gradients and time, in bfloat16."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from accelerator_parts.fake_cudnn import use_fake_cudnn_without_gpu
from accelerator_parts.models import format_error, work_of
from accelerator_parts.timing import time_in_blocks
from this_project import packed_batch

from transformer.model.transformer import Transformer, init_params
from transformer.ops.attention import dot_product_attention
from transformer.ops.fused_attention import fused_attention
from transformer.ops.masks import causal_mask, combine_masks, segment_mask
from transformer.training.objective import cross_entropy

_KEY_DIM = 64
# The kernel's error may be this multiple of the reference's bfloat16 error, plus the slack.
_FACTOR, _SLACK = 2.0, 1e-3


class _Case(NamedTuple):
  """A kind of attention: whether it is causal, and whether rows have several segments."""

  cross: bool
  causal: bool
  packed: bool


_CASES = {
  'self': _Case(cross=False, causal=False, packed=False),
  'causal': _Case(cross=False, causal=True, packed=False),
  'cross': _Case(cross=True, causal=False, packed=False),
  'self, packed': _Case(cross=False, causal=False, packed=True),
  'causal, packed': _Case(cross=False, causal=True, packed=True),
  'cross, packed': _Case(cross=True, causal=False, packed=True),
}


def measure(
  rows: int, length: int, heads: int, timed_rows: int
) -> Iterator[dict[str, Any]]:
  """Yields a row for each case: the errors against float32, and the times of both.

  Args:
    rows: number of rows for the comparison.
    length: queries per row. In cross-attention, a row has three quarters of this number of keys.
    heads: attention heads.
    timed_rows: number of rows for the timing.
  """
  use_fake_cudnn_without_gpu()
  for name, case in _CASES.items():
    try:
      mask_BTS = _mask(case, rows, length)
      arrays = random_arrays(rows, length, mask_BTS.shape[-1], heads)
      many = timed_rows // rows
      timed_mask = jnp.tile(mask_BTS, (many, 1, 1))
      timed_arrays = [jnp.tile(x, (many, 1, 1, 1)) for x in arrays]
      yield {
        'case': name,
        **_compare(mask_BTS, arrays),
        **{
          f'{side}_seconds': times_of(attend, timed_mask, timed_arrays)['seconds']
          for side, attend in (
            ('kernel', fused_attention),
            ('reference', dot_product_attention),
          )
        },
      }
    except Exception as error:
      yield {'case': name, 'error': format_error(error)}
  try:
    yield {'case': 'a whole model, packed', **_compare_models(rows, length)}
  except Exception as error:
    yield {'case': 'a whole model, packed', 'error': format_error(error)}


def _mask(case: _Case, rows: int, length: int):
  """Returns the mask [B, T, S] of rows that end with padding, whose queries attend to nothing.

  Packed rows have four segments of random lengths. In cross-attention the lengths of the two
  sides differ, and the fourth segment of the first row has no keys.
  """
  rng = np.random.default_rng(0)
  keys = 3 * length // 4 if case.cross else length

  def segments(size):
    """Splits each row of `size` positions into segments; the last positions are padding."""
    if not case.packed:
      return np.broadcast_to(np.arange(size) < size - size // 8, (rows, size)).astype(
        np.int32
      )
    ends = np.sort(rng.choice(np.arange(1, size), (rows, 4)), axis=1)
    numbers = 1 + (np.arange(size) >= ends[:, :, None]).sum(1)
    return np.where(numbers == 5, 0, numbers).astype(np.int32)

  of_queries = segments(length)
  of_keys = segments(keys) if case.cross else of_queries
  if case.packed and case.cross:
    of_keys[0] = np.where(of_keys[0] == 4, 0, of_keys[0])
  mask_BTS = segment_mask(jnp.asarray(of_queries), jnp.asarray(of_keys))
  return combine_masks(causal_mask(length), mask_BTS) if case.causal else mask_BTS


def random_arrays(rows: int, queries: int, keys: int, heads: int):
  """Returns queries, keys, values and the gradient of the output."""
  rng = np.random.default_rng(1)
  return [
    jnp.asarray(rng.normal(size=(rows, length, heads, _KEY_DIM)), jnp.bfloat16)
    for length in (queries, keys, keys, queries)
  ]


@functools.partial(jax.jit, static_argnums=0)
def gradients_of(attend, mask_BTS, q, k, v, given):
  """Returns the output and the gradients of queries, keys and values."""
  out, backward = jax.vjp(lambda *qkv: attend(*qkv, mask_BTS), q, k, v)
  return out, *backward(given)


def _compare(mask_BTS, arrays) -> dict[str, Any]:
  """Returns the errors of the kernel and of the reference in bfloat16, and other properties."""
  with jax.default_matmul_precision('highest'):
    exact = gradients_of(
      dot_product_attention, mask_BTS, *(x.astype(jnp.float32) for x in arrays)
    )
  found = gradients_of(fused_attention, mask_BTS, *arrays)
  again = gradients_of(fused_attention, mask_BTS, *arrays)
  plain = gradients_of(dot_product_attention, mask_BTS, *arrays)
  empty_BT = ~np.asarray(mask_BTS).any(-1)
  kernel, reference = (
    [error_of(array, wanted) for array, wanted in zip(side, exact, strict=True)]
    for side in (found, plain)
  )
  return {
    'value_error': kernel[0],
    'gradient_error': max(kernel[1:]),
    'reference_value_error': reference[0],
    'reference_gradient_error': max(reference[1:]),
    'agrees': all(
      ours <= _FACTOR * theirs + _SLACK
      for ours, theirs in zip(kernel, reference, strict=True)
    ),
    'empty_queries': int(empty_BT.sum()),
    'empty_are_zero': not any(
      np.asarray(x, np.float32)[empty_BT].any() for x in found[:2]
    ),
    'same_bits': all(
      np.array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))
      for a, b in zip(found, again, strict=True)
    ),
  }


def error_of(found, wanted) -> float:
  """Returns the norm of the error divided by the norm of the expected values; NaN if any is NaN."""
  found, wanted = (np.asarray(x, np.float32) for x in (found, wanted))
  return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def times_of(attend, mask_BTS, arrays) -> dict[str, float]:
  """Returns the times of a forward and a backward pass, as from `time_in_blocks`."""
  out = None

  def start():
    nonlocal out
    out = gradients_of(attend, mask_BTS, *arrays)

  return time_in_blocks(start, lambda: jax.block_until_ready(out))


def _compare_models(rows: int, length: int) -> dict[str, Any]:
  """Returns the errors of the gradient of a whole model's loss, without dropout, in packed rows."""
  work = work_of('toy', rows, length)
  # Heads of the same width as in the other cases.
  config = dataclasses.replace(work.model, num_layers=2, model_dim=2 * _KEY_DIM)
  batch = packed_batch(work)
  plain = dataclasses.replace(config, attention='reference')
  params = init_params(Transformer(plain, work.vocabulary_size), 0)

  def gradient(config):
    def loss(params):
      sums = cross_entropy(0.1).loss(
        Transformer(config, work.vocabulary_size), params, batch
      )
      return sums['loss'] / sums['weight']

    value, gradients = jax.jit(jax.value_and_grad(loss))(params)
    return value, jnp.concatenate([x.ravel() for x in jax.tree.leaves(gradients)])

  with jax.default_matmul_precision('highest'):
    exact = gradient(dataclasses.replace(plain, dtype='float32'))
  kernel, reference = (
    [error_of(*pair) for pair in zip(gradient(variant), exact, strict=True)]
    for variant in (config, plain)
  )
  return {
    'value_error': kernel[0],
    'gradient_error': kernel[1],
    'reference_value_error': reference[0],
    'reference_gradient_error': reference[1],
    'agrees': all(
      ours <= _FACTOR * theirs + _SLACK
      for ours, theirs in zip(kernel, reference, strict=True)
    ),
  }
