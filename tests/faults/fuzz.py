"""Tries random configs, and random input of eval.py.

  python -m tests.faults.fuzz [--examples=20000]

- Nested dicts with any keys and values either give a `Config`, which its own dict gives again, or
  an error in one line.
- Random bytes, with valid or broken UTF-8, either give a translation for every line, or an error
  in one line that names the file.

8,000 examples take a minute on one core.
"""

import argparse
import dataclasses
import functools
import json
import tempfile
from pathlib import Path

import jax
import numpy as np
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

# Values that are valid for some key, so that not every example is refused at its first value.
_VALID = ('tfds', 'text', 'post', 'pre', 'cosine', 'rotary', 'learned', 'bfloat16', 'intl', 'here',
          0, 1, 2, 7, 64, 256, 1000, -1, 0.0, 0.1, 0.5, 2.0, True, False, None, ('a', 'b'), [1.0])
SCALARS = st.one_of(
    st.sampled_from(_VALID), st.none(), st.booleans(), st.integers(), st.floats(),
    st.text(st.characters(), max_size=20), st.binary(max_size=9), st.complex_numbers(),
    st.sampled_from([10 ** 400, -10 ** 4000, 2 ** 63, 'a\nb', '\ud800', '\x00', np.int64(3),
                     np.float32(0.5), np.zeros((2, 2)), float('nan'), {1, 2}, object, Path('x')]))
VALUES = st.recursive(SCALARS, lambda inner: st.one_of(
    st.lists(inner, max_size=4), st.tuples(inner, inner),
    st.dictionaries(st.one_of(st.text(max_size=9), st.integers()), inner, max_size=3)),
                      max_leaves=9)
GROUPS = {field.name: field.type for field in dataclasses.fields(Config)}


def _group(kind):
  """Returns a strategy for dicts of a group; most names are valid."""
  names = st.sampled_from([field.name for field in dataclasses.fields(kind)])
  other = st.one_of(st.text(max_size=9), st.integers(), st.none())
  return st.dictionaries(st.one_of(names, names, names, other), VALUES, max_size=6)


TREES = st.one_of(VALUES, st.fixed_dictionaries({}, optional={
    name: st.one_of(_group(kind), VALUES) if dataclasses.is_dataclass(kind) else VALUES
    for name, kind in GROUPS.items()}), st.dictionaries(st.text(max_size=9), VALUES, max_size=2))
BYTES = st.one_of(
    st.binary(max_size=60), st.text(max_size=40).map(lambda text: text.encode('utf-8', 'replace')),
    st.lists(st.sampled_from([
        b'\n', b'\r\n', b'\r', b'\x00', b'\xef\xbb\xbf', b'\xed\xa0\x80', b'\xe2\x80\xa8', b'dog',
        b' ', '\u200f\u0301😀'.encode(), b'\xc3', b'\xf0\x9f', b'man ' * 40]),
             max_size=12).map(b''.join))


def check_tree(tree):
  """Checks that a config is either valid and survives JSON, or refused in one line."""
  try:
    config = Config.from_dict(tree)
  except UserError as error:
    check_line(error)
    return
  assert all(isinstance(value, (str, int, float, tuple, type(None)))
             for value in flatten(config.to_dict()).values())
  assert Config.from_dict(config.to_dict()) == config
  assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def check_key(name, value):
  """Checks that one key is either valid, or refused in one line that names it or its group."""
  tree = value
  for part in reversed(name.split('.')):
    tree = {part: tree}
  try:
    Config.from_dict(tree)
  except UserError as error:
    check_line(error)
    assert any(part in str(error) for part in name.split('.')), (name, value, str(error))


def check_line(error: UserError):
  """Checks that an error is one line, not too long to read, and printable."""
  message = str(error)
  assert len(message.splitlines()) == 1, message
  assert len(message) < 1000, message
  message.encode('utf-8', 'backslashreplace')


def check_input(data: bytes, path: Path):
  """Checks that every line has a translation, or that the error names the file and the line."""
  path.write_bytes(data)
  try:
    lines = read_lines(path)
  except UserError as error:
    check_line(error)
    assert f'{path} must be UTF-8; line ' in str(error), error
    try:
      data.decode('utf-8')
    except UnicodeDecodeError:
      return
    raise AssertionError(f'{data!r} is UTF-8 and was refused') from None
  data = data.removeprefix(b'\xef\xbb\xbf')
  assert len(lines) == data.count(b'\n') + (data[-1:] not in (b'', b'\n')), data
  translate, params = translator()
  answers = translate(params, lines)
  assert len(answers) == len(lines)
  for line, answer in zip(lines, answers, strict=True):
    assert '\n' not in answer.text and answer.text.encode('utf-8').decode('utf-8') == answer.text
    assert answer.text == '' or line.strip(), (line, answer)
    assert np.isfinite(answer.score), (line, answer)


@functools.cache
def translator():
  """Returns a translator with two beams and a tiny model, and random parameters."""
  vocabulary = Vocabulary.train(['a dog runs', 'a man climbs a rock', 'ein hund läuft'] * 9, 290)
  model = Transformer(ModelConfig(num_layers=1, model_dim=8, ff_dim=11, num_heads=2),
                      vocabulary.size)
  params = jax.tree.map(lambda leaf: 2.0 * leaf, jax.jit(lambda: init_params(model, 3))())
  decode = DecodeConfig(beam_size=2, max_extra_length=3, batch_size=8)
  return Translator(model, vocabulary, decode, 16), params


def fuzz(examples: int, derandomize: bool):
  """Tries configs, single keys and inputs.

  Args:
    examples: number of configs and of single keys; there are a quarter as many inputs.
    derandomize: whether to try the same examples every time.
  """
  def options(examples):
    return settings(max_examples=examples, deadline=None, derandomize=derandomize, database=None,
                    suppress_health_check=list(HealthCheck))

  keys = st.sampled_from(sorted(flatten(Config().to_dict())))
  options(examples)(given(TREES)(check_tree))()
  options(examples)(given(keys, VALUES)(check_key))()
  with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / 'input'
    options(examples // 4)(given(BYTES)(lambda data: check_input(data, path)))()


def main():
  """Tries new examples, and prints their numbers."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--examples', type=int, default=20_000)
  examples = parser.parse_args().examples
  fuzz(examples, derandomize=False)
  print(f'{examples:,} configs, {examples:,} single keys and {examples // 4:,} inputs: '
        'a result or one line, each time')


if __name__ == '__main__':
  main()
