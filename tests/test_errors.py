"""What the errors of others mean."""

import errno
import os

import jax
import numpy as np
import pytest

from transformer.errors import is_out_of_memory

MESSAGES = [
    'RESOURCE_EXHAUSTED: Out of memory allocating 3600000000 bytes.',
    # A program that reads the result of another, on a CPU.
    'INTERNAL: Error dispatching computation: Out of memory allocating 3600000000 bytes.',
    'INTERNAL: Failed to allocate: CUDA_ERROR_OUT_OF_MEMORY: out of memory',
    'INTERNAL: RET_CHECK failure: std::bad_alloc']


def test_a_lack_of_memory_is_known_by_its_words_its_type_and_as_a_cause():
  for message in MESSAGES:
    assert is_out_of_memory(jax.errors.JaxRuntimeError(message))
  with pytest.raises(MemoryError) as numpys:
    np.ones(2 ** 50)
  assert is_out_of_memory(numpys.value)
  assert is_out_of_memory(OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))
  with pytest.raises(ValueError, match='lost') as wrapped:
    raise ValueError('lost') from jax.errors.JaxRuntimeError(MESSAGES[1])
  assert is_out_of_memory(wrapped.value)
  assert not any(map(is_out_of_memory, (ValueError('memory of the encoder'), OSError(28, 'No'))))
