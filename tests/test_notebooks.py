"""The notebooks match their pages, are valid, and run from top to bottom."""

import pathlib
import re
import subprocess
import sys

import nbformat
import pytest

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / 'docs').glob('*.ipynb'))
# Runs the code of a notebook in one namespace; its last line is the number of pictures.
RUN = """
import json, sys
names, pictures = {}, 0
for cell in json.load(open(sys.argv[1], encoding='utf-8'))['cells']:
  code = ''.join(cell['source'])
  if code.startswith('figures.picture('):
    assert '<svg' in eval(code, names)._repr_svg_()
    pictures += 1
  elif cell['cell_type'] == 'code':
    exec(code, names)
print(pictures)
"""


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_has_the_code_and_the_results_of_its_page_and_working_links(path):
  content, pages = (
    nbformat.read(path, 4),
    [other.with_suffix('.md') for other in NOTEBOOKS],
  )
  nbformat.validate(content)
  page = path.with_suffix('.md').read_text('utf-8')
  cells = [cell for cell in content.cells if cell.cell_type == 'code']
  blocks = [
    block.strip('\n')
    for block in re.findall('^```python\n(.*?)^```', page, re.M | re.S)
  ]
  assert [
    cell.source for cell in cells[1:] if 'figures.picture' not in cell.source
  ] == blocks
  results = re.findall('^```text.*?\n(.*?)^```', page, re.M | re.S)
  assert [output.text for cell in cells for output in cell.outputs] == results
  for cell in content.cells[1:]:
    for link in (
      re.findall(r'\]\(([^)\s]+)\)', cell.source) if cell.cell_type != 'code' else ()
    ):
      file, _, anchor = link.partition('#')
      if not file.startswith('http'):
        target = path.parent / file if file else path
        assert target.exists() and target not in pages, link
        assert target.with_suffix('.ipynb') not in NOTEBOOKS or anchor in (
          '',
          *anchors(target),
        )


def anchors(path):
  """Returns the anchors that Jupyter makes for the headings of a notebook."""
  cells = nbformat.read(path, 4).cells
  return [
    heading.replace(' ', '-')
    for cell in cells
    if cell.cell_type == 'markdown'
    for heading in re.findall('^#+ (.*)$', cell.source, re.MULTILINE)
  ]


def test_the_notebooks_match_their_pages():
  done = subprocess.run(
    [sys.executable, ROOT / 'docs' / 'notebook.py'],
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  assert {path.with_suffix('.md') for path in NOTEBOOKS} == {
    ROOT / 'docs' / 'inside.md',
    *(ROOT / 'docs').glob('notes*.md'),
  }


def test_a_notebook_runs_where_jupyter_starts_it_and_plots_its_figure():
  done = subprocess.run(
    [sys.executable, '-c', RUN, 'notes.ipynb'],
    cwd=ROOT / 'docs',
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.endswith('True\n1\n')
