"""The short form of fuzz.py: the same examples every time."""

import pytest

from tests.faults import fuzz
from transformer.errors import UserError

pytestmark = pytest.mark.long


def test_random_configs_and_input_give_a_result_or_one_line():
  fuzz.fuzz(examples=400, derandomize=True)


def test_the_checks_fail_for_anything_else(tmp_path, monkeypatch):
  fuzz.check_key('seed', 'x')
  with pytest.raises(AssertionError):
    fuzz.check_line(UserError('two\nlines'))
  with pytest.raises(AssertionError):
    fuzz.check_line(UserError('x' * 1000))
  fuzz.check_input(b'a\n\n b\xc3\xbc', tmp_path / 'input')
  fuzz.check_input(b'a\n\xc3', tmp_path / 'input')
  monkeypatch.setattr(fuzz, 'read_lines', lambda path: path.read_text('utf-8').splitlines())
  with pytest.raises(AssertionError):
    fuzz.check_input('a\u2028b'.encode(), tmp_path / 'input')
