"""A safetensors file returns the same bits; a damaged or foreign file raises a one-line error."""

import json
import struct

import chex
import numpy as np
import pytest
from safetensors.numpy import load, save

from transformer.errors import UserError
from transformer.tools.convert.safetensors_format import FORMAT, Weights, read, write

TENSORS = {
  'encoder_0': {
    'query': {
      'kernel': np.arange(30, dtype=np.float32).reshape(2, 3, 5),
      'bias': np.array([[0.1, -0.0, 3e38]], np.float32),
    }
  },
  'output': np.array([[np.pi]], np.float32),
}
WEIGHTS = Weights(
  {'seed': 7, 'data': {'dir': 'größe', 'train': ['a']}},
  {'vocabulary.model': b'\x00\xff'},
  [3, 5],
  TENSORS,
)


@pytest.fixture
def path(tmp_path):
  write(tmp_path / 'model.safetensors', WEIGHTS)
  return tmp_path / 'model.safetensors'


def change(path, about=(), tensors=()):
  """Writes the file again with changed metadata and tensors."""
  content = path.read_bytes()
  (length,) = struct.unpack('<Q', content[:8])
  metadata = json.loads(json.loads(content[8 : 8 + length])['__metadata__'][FORMAT])
  path.write_bytes(
    save(
      {**load(content), **dict(tensors)},
      {FORMAT: json.dumps({**metadata, **dict(about)})},
    )
  )


def error(path):
  with pytest.raises(UserError) as caught:
    read(path)
  assert str(path) in str(caught.value) and len(str(caught.value).splitlines()) == 1
  return str(caught.value)


def test_a_written_file_is_read_bit_for_bit_with_names_joined_by_dots(path, tmp_path):
  weights, tensors = read(path), load(path.read_bytes())
  assert weights[:3] == WEIGHTS[:3]
  assert tensors.keys() == {
    'encoder_0.query.kernel',
    'encoder_0.query.bias',
    'output',
    'vocabulary.model',
  }
  chex.assert_trees_all_equal(weights.params, TENSORS, strict=True)
  write(tmp_path / 'again', weights)
  assert (tmp_path / 'again').read_bytes() == path.read_bytes()


def test_a_changed_byte_is_found_wherever_it_is(path):
  content = bytearray(path.read_bytes())
  for place in range(0, len(content), 3):
    content[place] ^= 1
    path.write_bytes(content)
    error(path)
    content[place] ^= 1
  for length in (0, 7, 200, len(content) - 1):
    path.write_bytes(content[:length])
    assert 'it is not, or is damaged' in error(path)


def test_a_changed_file_is_read_only_without_its_digest_and_other_files_are_rejected(
  path, tmp_path
):
  change(path, tensors={'output': np.zeros((1, 1), np.float32)})
  assert 'does not match its sha256' in error(path)
  change(path, {'sha256': None})
  assert read(path).params['output'] == 0
  (tmp_path / 'other').write_bytes(b'PK\x03\x04' * 50)
  assert 'should be a safetensors file' in error(tmp_path / 'other')
  (tmp_path / 'plain').write_bytes(save({'weight': np.zeros(3)}))
  assert 'its metadata has no such entry' in error(tmp_path / 'plain')
  assert 'cannot be read' in error(tmp_path / 'gone')
  change(path, {'version': 2})
  assert 'in version 1' in error(path)
  for number in (np.nan, -np.inf):
    change(path, tensors={'output': np.float32([[number]])})
    assert 'holds NaN or infinity in output; ' in error(path)
