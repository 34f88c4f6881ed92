"""Builds notebooks from pages, the notes and inside.md, for readers who want to change the code.

  python docs/notebook.py            # fails if a notebook is stale
  python docs/notebook.py --write    # writes docs/*.ipynb

Text becomes a text cell, a block of Python becomes a code cell, and the result on the page becomes
the output of the cell. After a picture, a cell draws it from the variables of the notebook.
"""

import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from run_pages import BLOCK  # From this folder.

DOCS = pathlib.Path(__file__).resolve().parent
PAGES = ('inside', 'notes', 'notes-heads', 'notes-order', 'notes-translation')
# The pages that need a run, and the command that trains it.
_RUNS = dict.fromkeys(('inside', 'notes-translation'), 'bash launch/quickstart.sh')
_OPEN = """{title}

This notebook has the text and the code of [its page]({page}.md). To experiment, change a number,
and run the cells below it again. In a checkout of this repository:

```sh
pip install -r requirements.txt matplotlib jupyterlab
{trains}jupyter lab docs/{page}.ipynb
```
"""
_SET_UP = """\
import os
import pathlib
import sys

here = pathlib.Path.cwd()
root = next(folder for folder in (here, *here.parents) if (folder / 'train.py').is_file())
os.chdir(root)  # Paths such as runs/quickstart begin here.
sys.path[:0] = [str(root), str(root / 'docs')]

import figures  # docs/figures.py draws the pictures.
"""
_PICTURE = re.compile(r'^!\[[^\]]*\]\(figures/(?P<name>\w+)\.svg\)\n', re.M)
_LINK = re.compile(r'\]\((?P<page>[\w-]*)(?P<file>\.md)?(?:#(?P<anchor>[\w-]+))?\)')


def notebook(page: str) -> str:
  """Returns the notebook of a page as JSON, as Jupyter writes it."""
  title, _, text = (DOCS / f'{page}.md').read_text('utf-8').partition('\n')
  trains = f'{_RUNS[page]}\n' if page in _RUNS else ''
  cells, end = (
    [
      ('markdown', _OPEN.format(title=title, page=page, trains=trains), None),
      ('code', _SET_UP, None),
    ],
    0,
  )
  for block in BLOCK.finditer(text):
    cells += [
      *_prose(text[end : block.start()], page),
      ('code', block['code'], block['result']),
    ]
    end = block.end()
  cells += _prose(text[end:], page)
  content = {
    'cells': [_cell(number, *cell) for number, cell in enumerate(cells)],
    'metadata': {
      'kernelspec': {
        'display_name': 'Python 3',
        'language': 'python',
        'name': 'python3',
      },
      'language_info': {'name': 'python'},
    },
    'nbformat': 4,
    'nbformat_minor': 5,
  }
  return json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + '\n'


def _prose(text: str, page: str):
  """Yields text cells, and after each picture a cell that draws it."""
  end = 0
  for picture in _PICTURE.finditer(text):
    yield 'markdown', _linked(text[end : picture.end()], page), None
    yield 'code', f'figures.picture(figures.{picture["name"]}, globals())\n', None
    end = picture.end()
  if text[end:].strip():
    yield 'markdown', _linked(text[end:], page), None


def _linked(text: str, page: str) -> str:
  """Returns text whose links to notes lead to the notebooks, with Jupyter's names of headings."""

  def link(match: re.Match) -> str:
    target, anchor = match['page'] or page, match['anchor']
    if target not in PAGES or bool(match['page']) != bool(match['file']):
      return match[0]
    headings = re.findall('^#+ (.*)$', (DOCS / f'{target}.md').read_text('utf-8'), re.M)
    names = {
      re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-'): heading.replace(
        ' ', '-'
      )
      for heading in headings
    }
    return f']({f"{target}.ipynb" if match["page"] else ""}{f"#{names[anchor]}" if anchor else ""})'

  return _LINK.sub(link, text)


def _cell(number: int, kind: str, source: str, result: str | None) -> dict:
  cell = {
    'cell_type': kind,
    'id': f'cell-{number}',
    'metadata': {},
    'source': source.strip('\n').splitlines(keepends=True),
  }
  if kind == 'code':
    cell |= {
      'execution_count': None,
      'outputs': []
      if result is None
      else [
        {
          'name': 'stdout',
          'output_type': 'stream',
          'text': result.splitlines(keepends=True),
        }
      ],
    }
  return cell


if __name__ == '__main__':
  for name in PAGES:
    path = DOCS / f'{name}.ipynb'
    if '--write' in sys.argv[1:]:
      path.write_text(notebook(name), 'utf-8')
    elif not path.exists() or path.read_text('utf-8') != notebook(name):
      sys.exit(f'{path} is stale: run python docs/notebook.py --write')
