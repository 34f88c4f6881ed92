"""Translations as the lines that they are written as."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from transformer.inference.translate import Translation


def as_lines(answers: Sequence[Translation], nbest: int, first: int = 0) -> list[str]:
  """Returns translations, or n-best lists, as lines.

  Args:
    answers: the translations.
    nbest: how many were asked for; of several each stands as number ||| text ||| score.
    first: the number of the first.
  """
  if nbest == 1:
    return [answer.text for answer in answers]
  return [f'{number} ||| {text} ||| {score:.6f}' for number, answer in enumerate(answers, first)
          for text, score in answer.nbest]


def write_lines(lines: Iterable[str], output: str):
  """Writes lines of UTF-8 to a file, or to standard output, which is `-`."""
  if output == '-':
    sys.stdout.reconfigure(encoding='utf-8', newline='\n')
    sys.stdout.writelines(line + '\n' for line in lines)
    sys.stdout.flush()
  else:
    path = Path(output).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(line + '\n' for line in lines), encoding='utf-8', newline='\n')
