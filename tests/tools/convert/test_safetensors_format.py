"""A safetensors file returns the same bits, and a damaged or foreign one is refused in one line."""

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import load, save

from transformer.errors import UserError
from transformer.tools.convert.safetensors_format import FORMAT, Weights, read, write

TENSORS = {'encoder_0': {'query': {'kernel': np.arange(30, dtype=np.float32).reshape(2, 3, 5),
                                   'bias': np.array([[0.1, -0.0, np.inf]], np.float32)}},
           'output': np.array([[np.pi]], np.float32)}
WEIGHTS = Weights({'seed': 7, 'data': {'dir': 'größe', 'train': ['a']}},
                  {'vocabulary.model': b'\x00\xff'}, [3, 5], TENSORS)


@pytest.fixture
def path(tmp_path):
  write(tmp_path / 'model.safetensors', WEIGHTS)
  return tmp_path / 'model.safetensors'


def change(path, about=(), tensors=()):
  """Writes the file again with changed metadata and tensors; None removes a tensor."""
  content = path.read_bytes()
  length, = struct.unpack('<Q', content[:8])
  metadata = json.loads(json.loads(content[8:8 + length])['__metadata__'][FORMAT])
  tensors = {**load(content), **dict(tensors)}
  path.write_bytes(save({name: each for name, each in tensors.items() if each is not None},
                        {FORMAT: json.dumps({**metadata, **dict(about)})}))


def refusal(path):
  with pytest.raises(UserError) as caught:
    read(path)
  assert str(path) in str(caught.value) and len(str(caught.value).splitlines()) == 1
  return str(caught.value)


def test_what_is_written_is_read_bit_for_bit(path):
  found = read(path)
  assert found[:3] == WEIGHTS[:3]
  query, wanted = found.params['encoder_0']['query'], TENSORS['encoder_0']['query']
  assert found.params.keys() == TENSORS.keys() and query.keys() == wanted.keys()
  for name, each in wanted.items():
    assert query[name].dtype == np.float32 and query[name].shape == each.shape
    assert query[name].tobytes() == each.tobytes()
  assert found.params['output'].tobytes() == TENSORS['output'].tobytes()


def test_a_parameter_never_gives_way_to_a_vocabulary(tmp_path):
  params = TENSORS | {'vocabulary': {'model': np.ones(2, np.float32)}}
  with pytest.raises(UserError, match=r'vocabulary\.model, and the run has a parameter of that'):
    write(tmp_path / 'model.safetensors', WEIGHTS._replace(params=params))


def test_names_are_paths_joined_by_dots_beside_the_vocabulary(path):
  tensors = load(path.read_bytes())
  assert tensors.keys() == {'encoder_0.query.kernel', 'encoder_0.query.bias', 'output',
                            'vocabulary.model'}
  assert {'vocabulary.model': tensors['vocabulary.model'].tobytes()} == WEIGHTS.vocabulary


def test_every_changed_byte_is_found(path):
  content = bytearray(path.read_bytes())
  for place in range(len(content)):
    content[place] ^= 1
    path.write_bytes(content)
    refusal(path)
    content[place] ^= 1
  for length in (0, 7, 8, 200, len(content) - 1):
    path.write_bytes(content[:length])
    assert 'it is not, or is damaged' in refusal(path)


def test_a_file_with_a_changed_tensor_is_read_without_its_digest(path):
  change(path, tensors={'output': np.zeros((1, 1), np.float32)})
  assert 'does not match its sha256' in refusal(path)
  change(path, {'sha256': None})
  assert read(path).params['output'] == 0


@pytest.mark.parametrize(('about', 'tensors', 'reason'), [
    ({'version': 2}, {}, 'in version 1'),
    ({'vocabulary_sha256': 'a'}, {}, 'should hold the vocabulary'),
    ({}, {'vocabulary.model': None}, 'should hold the vocabulary'),
    ({'config': None}, {}, 'cannot be understood'),
    ({'steps': []}, {}, 'cannot be understood'),
    ({'steps': ['1']}, {}, 'cannot be understood'),
    ({'steps': [-1]}, {}, 'cannot be understood'),
    ({'steps': 7}, {}, 'cannot be understood'),
    ({}, {'output.kernel': np.zeros(1)}, 'cannot be beside its others'),
    ({}, {'encoder_0': np.zeros(1)}, 'cannot be beside its others')])
def test_foreign_files_are_refused(path, about, tensors, reason):
  change(path, {'sha256': None, **about}, tensors)
  assert reason in refusal(path)


@pytest.mark.parametrize('about', ['{', '7', '[]', '{}', '[' * 100_000])
def test_metadata_that_cannot_be_understood_is_refused(path, about):
  path.write_bytes(save({'output': np.zeros(1)}, {FORMAT: about}))
  assert 'cannot be understood' in refusal(path)


def test_other_files_are_refused(tmp_path):
  for content in (b'', b'PK\x03\x04' * 50, b'\xff' * 100):
    (tmp_path / 'other').write_bytes(content)
    assert 'should be a safetensors file' in refusal(tmp_path / 'other')
  (tmp_path / 'plain').write_bytes(save({'weight': np.zeros(3)}))
  assert 'its metadata has no entry' in refusal(tmp_path / 'plain')
  assert 'cannot be read' in refusal(tmp_path / 'gone')
  assert 'cannot be read' in refusal(tmp_path)


def test_the_same_weights_make_the_same_file(path, tmp_path):
  for number in range(5):
    write(tmp_path / str(number), read(path))
    assert (tmp_path / str(number)).read_bytes() == path.read_bytes()
