"""Kernels for attention in packed rows: `model.attention=cudnn` and possible replacements.

Kernels without a mask compute a different result; they show the cost of the mask.
"""

import functools
from collections.abc import Callable, Iterator
from importlib import util
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from accelerator_parts.attention import error_of, gradients_of, random_arrays, times_of
from accelerator_parts.models import format_error

from transformer.ops.attention import dot_product_attention
from transformer.ops.fused_attention import fused_attention
from transformer.ops.masks import causal_mask, combine_masks, segment_mask


class Kernel(NamedTuple):
  """An attention kernel.

  Attributes:
    attend: a function with the arguments of `fused_attention`, except `project`.
    package: a required package besides JAX; '' if none.
  """

  attend: Callable[..., jax.Array]
  package: str = ''


def _without_mask(q_BTHK, k_BSHK, v_BSHV, mask_BTS=None, bias_BHTS=None, *, scale=None):
  return jax.nn.dot_product_attention(
    q_BTHK, k_BSHK, v_BSHV, scale=scale, implementation='cudnn'
  )


def _of_jax_in_xla(
  q_BTHK, k_BSHK, v_BSHV, mask_BTS=None, bias_BHTS=None, *, scale=None
):
  return jax.nn.dot_product_attention(
    q_BTHK, k_BSHK, v_BSHV, mask=mask_BTS[:, None], scale=scale, implementation='xla'
  )


def _of_tokamax(
  kernel: str, q_BTHK, k_BSHK, v_BSHV, mask_BTS=None, bias_BHTS=None, *, scale=None
):
  """Attends with a kernel of tokamax, which takes the first and the last key of each query.

  A query that attends to nothing gets zeros, as from `fused_attention`.
  """
  from tokamax._src.ops.attention import base, pallas_mosaic_gpu, pallas_triton

  attend = {
    'mosaic': pallas_mosaic_gpu.PallasMosaicGpuFlashAttention,
    'triton': pallas_triton.PallasTritonFlashAttention,
  }[kernel]()
  sees_BT = jnp.any(mask_BTS, axis=-1)
  start_BT = jnp.argmax(mask_BTS, axis=-1).astype(jnp.int32)
  # A query without visible keys gets one, so that no kernel divides by zero.
  end_BT = start_BT + jnp.maximum(jnp.sum(mask_BTS, axis=-1, dtype=jnp.int32), 1)
  out_BTHV = attend(
    q_BTHK,
    k_BSHK,
    v_BSHV,
    logits_scale=base.AUTO if scale is None else scale,
    mask=base.Mask(k_start=start_BT[:, None], k_end=end_BT[:, None]),
  )
  return jnp.where(sees_BT[..., None, None], out_BTHV, 0)


KERNELS = {
  'cuDNN': Kernel(fused_attention),
  'cuDNN without a mask': Kernel(_without_mask),
  'reference': Kernel(dot_product_attention),
  'XLA in jax.nn': Kernel(_of_jax_in_xla),
  'Mosaic in tokamax': Kernel(functools.partial(_of_tokamax, 'mosaic'), 'tokamax'),
  'Triton in tokamax': Kernel(functools.partial(_of_tokamax, 'triton'), 'tokamax'),
}


def measure(
  rows: int, length: int, heads: list[int], sentence: int
) -> Iterator[dict[str, Any]]:
  """Yields a row for each case, number of heads and kernel: its error, and its time.

  Args:
    rows: rows of a batch.
    length: queries per row, and keys per row.
    heads: numbers of attention heads; rows × heads is constant, as for the first number.
    sentence: average tokens per sentence.
  """
  from accelerator_parts.fake_cudnn import use_fake_cudnn_without_gpu

  use_fake_cudnn_without_gpu()
  for count in heads:
    own_rows = rows * heads[0] // count
    arrays = random_arrays(own_rows, length, length, count)
    for case, mask_BTS in _masks(own_rows, length, sentence).items():
      few = slice(0, 4)
      with jax.default_matmul_precision('highest'):
        exact = gradients_of(
          dot_product_attention,
          mask_BTS[few],
          *(x[few].astype(jnp.float32) for x in arrays),
        )
      for name, kernel in KERNELS.items():
        if kernel.package and util.find_spec(kernel.package) is None:
          continue
        row = {
          'case': case,
          'rows': own_rows,
          'length': length,
          'heads': count,
          'kernel': name,
        }
        try:
          values, *gradients = gradients_of(kernel.attend, mask_BTS, *arrays)
          errors = [
            error_of(x[few], wanted)
            for x, wanted in zip((values, *gradients), exact, strict=True)
          ]
          yield {
            **row,
            'value_error': errors[0],
            'gradient_error': max(errors[1:]),
            **times_of(kernel.attend, mask_BTS, arrays),
          }
        except Exception as error:  # A kernel may not support this device.
          yield {**row, 'error': format_error(error)}


def _masks(rows: int, length: int, sentence: int) -> dict[str, jax.Array]:
  """Returns the masks [B, T, S] of packed rows, by the kind of attention."""
  rng = np.random.default_rng(0)

  def segments():
    """Splits each row into sentences of random lengths; the last positions are padding."""
    starts = rng.random((rows, length)) < 1 / sentence
    numbers = 1 + np.cumsum(starts, axis=1)
    numbers[:, length - length // 50 :] = 0
    return jnp.asarray(numbers.astype(np.int32))

  target, source = segments(), segments()
  return {
    'self': segment_mask(source, source),
    'causal': combine_masks(causal_mask(length), segment_mask(target, target)),
    'cross': segment_mask(target, source),
  }
