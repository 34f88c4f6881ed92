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
    'INTERNAL: RET_CHECK failure: std::bad_alloc',
]


@pytest.mark.parametrize('message', MESSAGES)
def test_all_words_of_xla_for_too_little_memory_are_known(message):
  assert is_out_of_memory(jax.errors.JaxRuntimeError(message))


def test_a_lack_of_memory_is_known_by_its_type_and_as_a_cause():
  with pytest.raises(MemoryError) as numpys:
    np.ones(2 ** 50)
  assert is_out_of_memory(numpys.value) and is_out_of_memory(MemoryError())
  assert is_out_of_memory(OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))
  with pytest.raises(ValueError, match='lost') as wrapped:
    raise ValueError('lost') from jax.errors.JaxRuntimeError(MESSAGES[1])
  assert is_out_of_memory(wrapped.value)


@pytest.mark.parametrize('error', [ValueError('memory of the encoder'), OSError(28, 'No')])
def test_other_errors_are_no_lack_of_memory(error):
  assert not is_out_of_memory(error)
