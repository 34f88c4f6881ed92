"""Prose uses the field's terms: a ceiling for phrases with a clearer standard form.

Lower `CEILING` when the rate falls; never raise it. CONTRIBUTING.md has the rules of style.
"""

import ast
import io
import pathlib
import re
import tokenize
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
CEILING = 0.3  # Uses per 1,000 words.
MIN_WORDS = 5  # A shorter string is rarely a sentence.
PARTS = ('transformer', 'launch', 'configs', 'benchmarks', 'docs', 'tests')
# The phrase -> what to write.
PHRASES = {
  r'th(?:at|ose) of': 'repeat the noun',
  r'what (?:it|they|is|are)': 'the noun',
  r'\w+ alone': 'only …',
  r"one's own|of (?:its|your|their) own": 'custom, user-defined',
  r'(?:go|goes|went|going) on': 'resume, continue',
  r'has ended': 'finished; removed',
  r'refus(?:e|es|ed|al|als|ing)': 'raise, reject',
  r'cuts?': 'tokenize, truncate, split',
  r'variations?': 'augmentation',
  r'peers?': 'baseline',
  r'rooms?|the road': 'package; capacity; core',
  r'(?:so|as) many': 'N, the number of',
  r'share of': 'fraction',
  r'(?:is|are) told': 'is notified, reports',
  r'for people': 'human-readable',
  r'(?:lies|lie|stands) (?:in|beside|with|at|there)': 'is, is stored',
  r'draws': 'samples',
  r'gives': 'returns, yields',
  r'anew': 'again',
  r'likewise': 'also',
  r'but for': 'except',
  r'(?:one|a sentence|object|pair) a line': 'one per line',
  r'beside': 'next to; versus',
  r'in place of': 'instead of',
  r'(?:of|from) before': 'earlier',
  r'as (?:it|they) (?:was|were)': 'unchanged',
  r'(?:begin|end) tokens?': 'BOS, EOS',
  r'whole numbers?': 'integer',
}
PATTERNS = {
  re.compile(rf'\b(?:{phrase})\b', re.IGNORECASE): better
  for phrase, better in PHRASES.items()
}


def prose_of_code(text: str) -> Iterator[tuple[int, str]]:
  """Yields the line and the text of comments, docstrings, messages and names of tests."""
  for token in tokenize.generate_tokens(io.StringIO(text).readline):
    if token.type == tokenize.COMMENT:
      yield token.start[0], token.string
  for node in ast.walk(ast.parse(text)):
    if isinstance(node, ast.FunctionDef) and node.name.startswith('test_'):
      yield node.lineno, node.name.replace('_', ' ')
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
      continue
    if len(node.value.split()) >= MIN_WORDS:
      yield node.lineno, node.value


def prose_of_page(text: str) -> Iterator[tuple[int, str]]:
  """Yields the lines of a page outside of code blocks, without code and addresses of links."""
  is_code = False
  for number, line in enumerate(text.splitlines(), 1):
    if line.lstrip().startswith('```'):
      is_code = not is_code
    elif not is_code:
      yield number, re.sub(r'`[^`]*`|\]\([^)]*\)', ' ', line)


def prose_of_script(text: str) -> Iterator[tuple[int, str]]:
  """Yields the lines of a shell script that are comments."""
  for number, line in enumerate(text.splitlines(), 1):
    if line.lstrip().startswith('#'):
      yield number, line


PROSE = {'.py': prose_of_code, '.md': prose_of_page, '.sh': prose_of_script}


def prose_files() -> list[pathlib.Path]:
  """Returns all Python files, pages and scripts, except the changelog and this file."""
  found = [ROOT / 'train.py', ROOT / 'eval.py', *ROOT.glob('*.md')]
  for part in PARTS:
    found += [path for path in (ROOT / part).rglob('*') if path.suffix in PROSE]
  excluded = ROOT / 'CHANGELOG.md', pathlib.Path(__file__)
  return sorted(path for path in found if path not in excluded)


def test_prose_uses_the_terms_of_the_field():
  words = 0
  uses = []
  for path in prose_files():
    for line, text in PROSE[path.suffix](path.read_text('utf-8')):
      words += len(text.split())
      for pattern, better in PATTERNS.items():
        for use in pattern.findall(text):
          uses.append(f'{path.relative_to(ROOT)}:{line}: {use!r} → {better}')
  assert words > 50_000
  rate = 1000 * len(uses) / words
  assert rate <= CEILING, '\n'.join([f'{rate:.2f} per 1,000 words', *uses])
