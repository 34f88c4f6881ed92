"""What the errors of others mean."""

import errno
import os

import jax
import pytest

from transformer.errors import is_out_of_memory


def test_a_lack_of_memory_is_known_by_its_words_its_type_and_as_a_cause():
  message = 'INTERNAL: Error dispatching computation: Out of memory allocating 3600000000 bytes.'
  for text in (
    message,
    'RESOURCE_EXHAUSTED: no',
    'CUDA_ERROR_OUT_OF_MEMORY',
    'std::bad_alloc',
  ):
    assert is_out_of_memory(jax.errors.JaxRuntimeError(text))
  assert is_out_of_memory(MemoryError())
  assert is_out_of_memory(OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))
  with pytest.raises(ValueError, match='lost') as wrapped:
    raise ValueError('lost') from jax.errors.JaxRuntimeError(message)
  assert is_out_of_memory(wrapped.value)
  assert not any(
    map(is_out_of_memory, (ValueError('memory of the encoder'), OSError(28, 'No')))
  )
