"""Random configs and random files of text give a result, or an error in one line.

FUZZ_EXAMPLES=20000 pytest tests/robustness/test_fuzz.py tries new examples; 8,000 take a minute.
"""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transformer.config import Config, flatten
from transformer.data.text.text_files import read_lines
from transformer.errors import UserError

pytestmark = pytest.mark.long
EXAMPLES = int(os.environ.get('FUZZ_EXAMPLES', '400'))
SCALARS = st.one_of(
  # Values that are valid for some key, so that not every example is rejected at its first value.
  st.sampled_from(
    [
      'tfds',
      'text',
      'post',
      'cosine',
      'rotary',
      'bfloat16',
      'intl',
      0,
      1,
      2,
      64,
      256,
      1000,
      -1,
      0.0,
      0.1,
      0.5,
      True,
      False,
      None,
      ('a', 'b'),
      [1.0],
    ]
  ),
  st.integers(),
  st.floats(),
  st.text(st.characters(), max_size=20),
  st.binary(max_size=9),
  st.sampled_from(
    [
      10**9 + 1,
      10**400,
      2**63,
      'a\nb',
      '\x1b[2J',
      '\u2028',
      '\ud800',
      '\x00',
      '../' * 99,
      'x' * 10_000,
      np.float32(0.5),
      1j,
      np.zeros((2, 2)),
      {1, 2},
      object,
      Path('x'),
    ]
  ),
)
VALUES = st.recursive(
  SCALARS,
  lambda inner: st.one_of(
    st.lists(inner, max_size=4),
    st.tuples(inner, inner),
    st.dictionaries(st.one_of(st.text(max_size=9), st.integers()), inner, max_size=3),
  ),
  max_leaves=9,
)
BYTES = st.one_of(
  st.binary(max_size=60),
  st.lists(
    st.sampled_from(
      [
        b'\n',
        b'\r\n',
        b'\r',
        b'\x00',
        b'\xef\xbb\xbf',
        b'\xed\xa0\x80',
        b'\xe2\x80\xa8',
        b'dog',
        b' ',
        '\u200f\u0301😀'.encode(),
        b'\xc3',
        b'\xf0\x9f',
      ]
    ),
    max_size=12,
  ).map(b''.join),
)


def _group(kind):
  """Returns a strategy for dicts of a group; most names are valid."""
  names = st.sampled_from([field.name for field in dataclasses.fields(kind)])
  other = st.one_of(st.text(max_size=9), st.integers(), st.none())
  return st.dictionaries(st.one_of(names, names, names, other), VALUES, max_size=6)


TREES = st.one_of(
  VALUES,
  st.fixed_dictionaries(
    {},
    optional={
      field.name: st.one_of(_group(field.type), VALUES)
      if dataclasses.is_dataclass(field.type)
      else VALUES
      for field in dataclasses.fields(Config)
    },
  ),
)


# The same examples every time, unless FUZZ_EXAMPLES is set.
tried = settings(
  max_examples=EXAMPLES,
  deadline=None,
  database=None,
  derandomize='FUZZ_EXAMPLES' not in os.environ,
  suppress_health_check=list(HealthCheck),
)


def check_line(error: UserError):
  """Checks that an error is one line, not too long to read, and printable."""
  message = str(error)
  assert message.isprintable() and len(message) < 500, message
  message.encode('utf-8', 'backslashreplace')


@tried
@given(tree=TREES)
def test_a_config_survives_json_or_is_rejected_in_one_line(tree):
  try:
    config = Config.from_dict(tree)
  except UserError as error:
    check_line(error)
    return
  assert all(
    isinstance(value, (str, int, float, tuple, type(None)))
    for value in flatten(config.to_dict()).values()
  )
  assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@tried
@given(name=st.sampled_from(sorted(flatten(Config().to_dict()))), value=VALUES)
def test_one_key_is_valid_or_named_in_the_error(name, value):
  group, _, key = name.rpartition('.')
  try:
    Config.from_dict({group: {key: value}} if group else {key: value})
  except UserError as error:
    check_line(error)
    assert group in str(error) or key in str(error), (name, value, str(error))


@tried
@given(data=BYTES)
def test_a_file_has_its_lines_or_the_error_names_it(tmp_path, data):
  path = tmp_path / 'input'
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
