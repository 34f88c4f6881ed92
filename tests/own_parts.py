"""The modules of docs/own-parts.md, for tests of the seams that they are examples of."""

import pathlib
import re
import sys

import pytest

PAGE = pathlib.Path(__file__).parents[1] / 'docs' / 'own-parts.md'


@pytest.fixture(scope='session')
def own_parts(tmp_path_factory):
  """Writes each `my_NAME.py` of the page where Python finds it; returns the folder."""
  folder = tmp_path_factory.mktemp('own_parts')
  for name, code in re.findall(r'`(my_\w+\.py)`(?:(?!```).)*```python\n(.*?)```',
                               PAGE.read_text('utf-8'), re.DOTALL):
    (folder / name).write_text(code, 'utf-8')
  sys.path.append(str(folder))
  yield folder
  sys.path.remove(str(folder))
