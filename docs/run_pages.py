"""Runs the Python of pages, and compares its output with the results on the pages.

  python docs/run_pages.py docs/notes.md           # fails where a result differs
  python docs/run_pages.py docs/notes.md --write   # writes the results into the page
  python docs/run_pages.py README.md --run         # also compares results of runs/quickstart

It prints a line for each block that it ran: the page, the line and `ok`, or the difference.
The blocks of a page are one program. The output of a block is below it in a block of ```text.
Results of the quickstart's run are in a block of ```text of a run. They are compared only with
--run: words exactly, and numbers within a tenth, since CPUs round differently.
"""

import contextlib
import io
import pathlib
import re
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
  sys.path.append(str(ROOT))

BLOCK = re.compile(
  r'^```python\n(?P<code>.*?)^```\n'
  r'(?:\n```text(?P<run> of a run)?\n(?P<result>.*?)^```\n)?',
  re.M | re.S,
)
_NUMBER = re.compile(r'-?\d+(?:\.\d+)?%?')


def run_blocks(page: pathlib.Path, names: dict) -> Iterator[tuple[re.Match, int, str]]:
  """Runs the blocks of a page in order; they share `names`.

  Yields each block, the number of its first line, and its output.

  Raises:
    ValueError: a block prints nothing but the page shows a result, or prints a result that the
      page does not show.
  """
  text = page.read_text('utf-8')
  for block in BLOCK.finditer(text):
    line = text.count('\n', 0, block.start('code'))
    code = compile('\n' * line + block['code'], str(page), 'exec')
    with contextlib.redirect_stdout(io.StringIO()) as out:
      exec(code, names)
    printed = ''.join(f'{line.rstrip()}\n' for line in out.getvalue().splitlines())
    if bool(printed) != (block['result'] is not None):
      raise ValueError(
        f'{page}, line {line}: the block prints {printed!r}, and the page shows {block["result"]!r}'
      )
    yield block, line + 1, printed


def run_page(page: pathlib.Path) -> dict:
  """Runs the blocks of a page, and returns the names that they define."""
  names = {}
  for _ in run_blocks(page, names):
    pass
  return names


def equal(result: str, wanted: str, *, of_run: bool = False) -> bool:
  """Returns whether two results agree: words exactly, decimals except for one of the last digit.

  Decimals and percentages `of_run` may differ by a tenth.
  """
  if ' '.join(_NUMBER.sub('#', result).split()) != ' '.join(
    _NUMBER.sub('#', wanted).split()
  ):
    return False
  for one, other in zip(_NUMBER.findall(result), _NUMBER.findall(wanted), strict=True):
    exact = '.' not in other and not other.endswith('%')
    last_digit = 1.01 * 10 ** -len(other.rstrip('%').partition('.')[2])
    number, expected = float(one.rstrip('%')), float(other.rstrip('%'))
    if abs(number - expected) > (
      0 if exact else 0.1 * abs(expected) if of_run else last_digit
    ):
      return False
  return True


def check(page: pathlib.Path, *, write: bool, run: bool) -> list[str]:
  """Runs a page, prints a line for each block, and returns the differences.

  Results of a run are compared if `run` is True. With `write`, the page then shows the new results.
  """
  text = page.read_text('utf-8')
  wrong, parts, end, ran = [], [], 0, 0
  for block, line, result in run_blocks(page, {}):
    verdict = 'ok'
    if block['result'] is not None:
      of_run = bool(block['run'])
      if of_run and not run:
        verdict = 'ok; its result depends on a run, and is compared with --run'
      elif not equal(result, block['result'], of_run=of_run):
        verdict = 'has a new result' if write else 'prints another result'
        wrong.append(
          f'{page}: the page shows\n{block["result"]}but its code prints\n{result}'
        )
      parts += [text[end : block.start('result')], result]
      end = block.end('result')
    ran += 1
    print(f'{page}, line {line}: {verdict}', flush=True)
  if not ran:
    print(f'{page} has no Python')
  if write:
    page.write_text(''.join([*parts, text[end:]]), 'utf-8')
    return []
  return wrong


if __name__ == '__main__':
  found, pages = (
    [],
    [pathlib.Path(name) for name in sys.argv[1:] if not name.startswith('--')],
  )
  for page in pages:
    found += check(page, write='--write' in sys.argv, run='--run' in sys.argv)
  if found or not pages:
    sys.exit('\n'.join(found) or __doc__)
