"""The plugins that the docs show, for tests of their extension points."""

import pathlib
import re
import sys

import pytest

DOCS = pathlib.Path(__file__).parents[1] / 'docs'


@pytest.fixture(scope='session')
def doc_plugins(tmp_path_factory):
  """Writes each `my_NAME.py` of the pages where Python finds it; returns the folder."""
  folder = tmp_path_factory.mktemp('doc_plugins')
  pages = [
    (DOCS / name).read_text('utf-8')
    for name in (
      'plugins.md',
      'documents.md',
      'objectives.md',
      'trackers.md',
      'changing-the-model.md',
      'models.md',
    )
  ]
  for name, code in re.findall(
    r'`(my_\w+\.py)`(?:(?!```).)*```python\n(.*?)```', ''.join(pages), re.DOTALL
  ):
    (folder / name).write_text(code, 'utf-8')
  sys.path.append(str(folder))
  yield folder
  sys.path.remove(str(folder))
