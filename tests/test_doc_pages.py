"""The pages are short, their links work, and the table of settings is not stale."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / 'README.md', *sorted((ROOT / 'docs').glob('*.md'))]
BESIDE = [ROOT / 'CHANGELOG.md', ROOT / 'CONTRIBUTING.md']


def anchors_of(page):
  """Returns the anchors of the headings of a page, as GitHub makes them."""
  headings = re.findall(r'^#+ (.*)$', page.read_text('utf-8'), re.MULTILINE)
  return {
    re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-') for heading in headings
  }


def test_the_table_of_settings_is_not_stale():
  done = subprocess.run(
    [sys.executable, ROOT / 'docs' / 'settings_table.py'],
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr


@pytest.mark.parametrize('page', [*PAGES, *BESIDE], ids=lambda page: page.name)
def test_pages_are_short_and_their_links_lead_to_files_and_headings(page):
  assert len(page.read_text('utf-8').splitlines()) <= (
    160 if page.name == 'README.md' else 250
  )
  for link in re.findall(r'\]\(([^)\s]+)\)', page.read_text('utf-8')):
    path, _, anchor = link.partition('#')
    if not path.startswith('http'):
      target = page.parent / path if path else page
      assert target.exists(), link
      assert not anchor or anchor in anchors_of(target), link


@pytest.mark.parametrize('name', ['architecture', 'attention'])
def test_diagrams_name_files_of_the_code(name):
  text = (ROOT / 'docs' / 'figures' / f'{name}.svg').read_text('utf-8')
  files = set(re.findall(r'>(\w+/\w+\.py)<', text))
  assert len(files) > 2
  assert [file for file in files if not (ROOT / 'transformer' / file).exists()] == []


def test_the_readme_links_to_every_page():
  readme = PAGES[0].read_text('utf-8')
  assert [page.name for page in PAGES[1:] if f'](docs/{page.name})' not in readme] == []


PAGE = """```python
print('pi', round(3.14159, 2), {whole})
```

```text
pi 3.14 7
```
"""


def test_results_on_a_page_are_compared_and_written(tmp_path):
  def run_pages(whole, *flags):
    if whole:
      page.write_text(PAGE.format(whole=whole), 'utf-8')
    return subprocess.run(
      [sys.executable, ROOT / 'docs' / 'run_pages.py', page, *flags],
      capture_output=True,
      text=True,
      check=False,
    )

  page = tmp_path / 'page.md'
  done = run_pages('7')
  assert (done.returncode, done.stdout) == (0, f'{page}, line 2: ok\n')
  differs = run_pages('8')
  assert differs.returncode == 1 and 'line 2: prints another result' in differs.stdout
  assert 'the page shows\npi 3.14 7\nbut its code prints' in differs.stderr
  assert run_pages('8', '--write').returncode == 0 == run_pages('').returncode
  assert '```text\npi 3.14 8\n```' in page.read_text('utf-8')
  assert 'line 2' in run_pages('1 / 0').stderr
  page.write_text('No code.', 'utf-8')
  assert run_pages('').stdout == f'{page} has no Python\n'
