"""Runs the Python of pages, and compares what it prints with the results that the pages show.

  python docs/run_pages.py docs/notes.md           # fails where a result differs
  python docs/run_pages.py docs/notes.md --write   # writes the results into the page
  python docs/run_pages.py README.md --run         # also compares results of runs/quickstart

The blocks of a page are one program. The output of a block is below it in a block of ```text.
Results of the quickstart's run are in a block of ```text of a run. They are compared only with
--run, words exactly, and numbers within a tenth, since processors round differently.
"""

import contextlib
import io
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
  sys.path.append(str(ROOT))

BLOCK = re.compile(r'^```python\n(?P<code>.*?)^```\n'
                    r'(?:\n```text(?P<run> of a run)?\n(?P<result>.*?)^```\n)?', re.M | re.S)
_NUMBER = re.compile(r'-?\d+(?:\.\d+)?%?')


def run_page(page: pathlib.Path) -> tuple[dict, list[str]]:
  """Runs the blocks of a page in order.

  Returns:
    The names that the blocks define, and what each block printed.

  Raises:
    ValueError: a block prints nothing where the page shows a result, or prints a result that the
      page does not show.
  """
  text, names, printed = page.read_text('utf-8'), {}, []
  for block in BLOCK.finditer(text):
    line = text.count('\n', 0, block.start('code'))
    code = compile('\n' * line + block['code'], str(page), 'exec')
    with contextlib.redirect_stdout(io.StringIO()) as out:
      exec(code, names)
    printed.append(''.join(f'{line.rstrip()}\n' for line in out.getvalue().splitlines()))
    if bool(printed[-1]) != (block['result'] is not None):
      raise ValueError(f'{page}, line {line}: the block prints {printed[-1]!r}, and the page '
                       f'shows {block["result"]!r}')
  return names, printed


def equal(result: str, wanted: str, *, of_run: bool = False) -> bool:
  """Returns whether two results agree: words exactly, decimals except for one of the last digit.

  Decimals and percentages `of_run` may differ by a tenth.
  """
  if ' '.join(_NUMBER.sub('#', result).split()) != ' '.join(_NUMBER.sub('#', wanted).split()):
    return False
  for one, other in zip(_NUMBER.findall(result), _NUMBER.findall(wanted), strict=True):
    exact = '.' not in other and not other.endswith('%')
    last_digit = 1.01 * 10 ** -len(other.rstrip('%').partition('.')[2])
    number, expected = float(one.rstrip('%')), float(other.rstrip('%'))
    if abs(number - expected) > (0 if exact else 0.1 * abs(expected) if of_run else last_digit):
      return False
  return True


def check(page: pathlib.Path, *, write: bool, run: bool) -> list[str]:
  """Runs a page, and returns the differences; with `write`, the page then shows the new results.

  Results of a run are compared if `run` is True.
  """
  _, printed = run_page(page)
  text = page.read_text('utf-8')
  wrong, parts, end = [], [], 0
  for block, result in zip(BLOCK.finditer(text), printed, strict=True):
    if block['result'] is not None:
      of_run = bool(block['run'])
      if (run or not of_run) and not equal(result, block['result'], of_run=of_run):
        wrong.append(f'{page}: the page shows\n{block["result"]}but its code prints\n{result}')
      parts += [text[end:block.start('result')], result]
      end = block.end('result')
  if write:
    page.write_text(''.join([*parts, text[end:]]), 'utf-8')
    return []
  return wrong


if __name__ == '__main__':
  found = []
  for name in sys.argv[1:]:
    if not name.startswith('--'):
      found += check(pathlib.Path(name), write='--write' in sys.argv, run='--run' in sys.argv)
  if found:
    sys.exit('\n'.join(found))
