"""The file of n-best lists that eval.py writes."""

import re
from pathlib import Path

from transformer.data.text.text_files import read_lines
from transformer.errors import UserError

_LINE = re.compile(r'(\d+) \|\|\| (.*) \|\|\| (\S+)')


def read_lists(path: Path) -> list[list[tuple[str, float]]]:
  """Returns the candidates of each sentence with their scores, in the order of the file.

  Raises:
    UserError: the file cannot be read, or a line is not one of n-best lists.
  """
  lists: list[list[tuple[str, float]]] = []
  for number, line in enumerate(read_lines(path), 1):
    try:
      sentence, text, score = _LINE.fullmatch(line).groups()
      candidate = text, float(score)
    except (AttributeError, ValueError) as error:
      raise UserError(f'line {number} of {path} should be NUMBER ||| TEXT ||| SCORE, as eval.py '
                      f'--nbest=N writes it; got {line[:80]!r}') from error
    if int(sentence) not in (len(lists) - 1, len(lists)):
      raise UserError(f'line {number} of {path} is of sentence {sentence}; the line before it is '
                      f'of sentence {len(lists) - 1}; sort them by their numbers, from 0')
    if int(sentence) == len(lists):
      lists.append([])
    lists[-1].append(candidate)
  if not lists:
    raise UserError(f'{path} should hold n-best lists, as eval.py --nbest=N writes them; it is '
                    f'empty')
  return lists
