"""The modes that tests share have their effects."""

import importlib.util
import sys

from hypothesis import given, settings
from hypothesis import strategies as st


def test_examples_do_not_depend_on_the_modules_that_other_tests_have_loaded(
  tmp_path, monkeypatch
):
  @settings(max_examples=100, database=None)
  @given(number=st.integers())
  def draw(number):
    drawn.append(number)

  drawn = []
  draw()
  before, drawn = drawn, []
  path = tmp_path / 'constants.py'
  path.write_text(
    f'constants = {[12345 + 999 * number for number in range(99)]}\n', 'utf-8'
  )
  spec = importlib.util.spec_from_file_location('constants', path)
  monkeypatch.setitem(sys.modules, 'constants', importlib.util.module_from_spec(spec))
  draw()
  assert drawn == before
