"""Random configs and random input of eval.py give a result, or an error in one line.

FUZZ_EXAMPLES=20000 pytest tests/faults/test_fuzz.py tries new examples; 8,000 take a minute.
"""

import dataclasses
import functools
import json
import os
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transformer.config import Config, flatten
from transformer.data.text.text_files import read_lines
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.config import DecodeConfig
from transformer.decoding.translator import Translator
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.training.step import init_params

pytestmark = pytest.mark.long
EXAMPLES = int(os.environ.get('FUZZ_EXAMPLES', '400'))
# Values that are valid for some key, so that not every example is refused at its first value.
VALID = ('tfds', 'text', 'post', 'pre', 'cosine', 'rotary', 'learned', 'bfloat16', 'intl', 'here',
         0, 1, 2, 7, 64, 256, 1000, -1, 0.0, 0.1, 0.5, 2.0, True, False, None, ('a', 'b'), [1.0])
SCALARS = st.one_of(
    st.sampled_from(VALID), st.none(), st.booleans(), st.integers(), st.floats(),
    st.text(st.characters(), max_size=20), st.binary(max_size=9), st.complex_numbers(),
    st.sampled_from([10 ** 400, -10 ** 4000, 2 ** 63, 'a\nb', '\ud800', '\x00', np.int64(3),
                     np.float32(0.5), np.zeros((2, 2)), float('nan'), {1, 2}, object, Path('x')]))
VALUES = st.recursive(SCALARS, lambda inner: st.one_of(
    st.lists(inner, max_size=4), st.tuples(inner, inner),
    st.dictionaries(st.one_of(st.text(max_size=9), st.integers()), inner, max_size=3)),
                      max_leaves=9)
BYTES = st.one_of(
    st.binary(max_size=60), st.text(max_size=40).map(lambda text: text.encode('utf-8', 'replace')),
    st.lists(st.sampled_from([
        b'\n', b'\r\n', b'\r', b'\x00', b'\xef\xbb\xbf', b'\xed\xa0\x80', b'\xe2\x80\xa8', b'dog',
        b' ', '\u200f\u0301😀'.encode(), b'\xc3', b'\xf0\x9f', b'man ' * 40]),
             max_size=12).map(b''.join))


def _group(kind):
  """Returns a strategy for dicts of a group; most names are valid."""
  names = st.sampled_from([field.name for field in dataclasses.fields(kind)])
  other = st.one_of(st.text(max_size=9), st.integers(), st.none())
  return st.dictionaries(st.one_of(names, names, names, other), VALUES, max_size=6)


TREES = st.one_of(VALUES, st.fixed_dictionaries({}, optional={
    field.name: st.one_of(_group(field.type), VALUES) if dataclasses.is_dataclass(field.type)
    else VALUES for field in dataclasses.fields(Config)}))


def tried(examples, **strategies):
  """Tries a test on examples: the same ones every time, unless FUZZ_EXAMPLES is set."""
  options = settings(max_examples=examples, deadline=None, database=None,
                     derandomize='FUZZ_EXAMPLES' not in os.environ,
                     suppress_health_check=list(HealthCheck))
  return lambda test: options(given(**strategies)(test))


def check_line(error: UserError):
  """Checks that an error is one line, not too long to read, and printable."""
  message = str(error)
  assert len(message.splitlines()) == 1 and len(message) < 1000, message
  message.encode('utf-8', 'backslashreplace')


@tried(EXAMPLES, tree=TREES)
def test_a_config_survives_json_or_is_refused_in_one_line(tree):
  try:
    config = Config.from_dict(tree)
  except UserError as error:
    check_line(error)
    return
  assert all(isinstance(value, (str, int, float, tuple, type(None)))
             for value in flatten(config.to_dict()).values())
  assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@tried(EXAMPLES, name=st.sampled_from(sorted(flatten(Config().to_dict()))), value=VALUES)
def test_one_key_is_valid_or_named_in_the_error(name, value):
  tree = value
  for part in reversed(name.split('.')):
    tree = {part: tree}
  try:
    Config.from_dict(tree)
  except UserError as error:
    check_line(error)
    assert any(part in str(error) for part in name.split('.')), (name, value, str(error))


@functools.cache
def translator():
  """Returns a translator with two beams and a tiny model, and random parameters."""
  vocabulary = Vocabulary.train(['a dog runs', 'a man climbs a rock', 'ein hund läuft'] * 9, 290)
  model = Transformer(ModelConfig(num_layers=1, model_dim=8, ff_dim=11, num_heads=2),
                      vocabulary.size)
  params = jax.tree.map(lambda leaf: 2.0 * leaf, jax.jit(lambda: init_params(model, 3))())
  decode = DecodeConfig(beam_size=2, max_extra_length=3, batch_size=8)
  return Translator(model, vocabulary, decode, 16), params


@pytest.fixture(scope='module')
def path(tmp_path_factory):
  return tmp_path_factory.mktemp('fuzz') / 'input'


@tried(EXAMPLES // 4, data=BYTES)
def test_every_line_has_a_translation_or_the_error_names_the_file(path, data):
  path.write_bytes(data)
  try:
    lines = read_lines(path)
  except UserError as error:
    check_line(error)
    assert f'{path} must be UTF-8; ' in str(error), error
    if b'\0' not in data:  # Text full of zeros is UTF-16.
      with pytest.raises(UnicodeDecodeError):
        data.decode('utf-8')
    return
  data = data.removeprefix(b'\xef\xbb\xbf')
  assert len(lines) == data.count(b'\n') + (data[-1:] not in (b'', b'\n')), data
  translate, params = translator()
  for line, answer in zip(lines, translate(params, lines), strict=True):
    assert '\n' not in answer.text and answer.text.encode('utf-8').decode('utf-8') == answer.text
    assert answer.text == '' or line.strip(), (line, answer)
    assert np.isfinite(answer.score), (line, answer)
