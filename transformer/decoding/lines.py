"""Formats translations and their scores as lines of text, and writes the lines."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from transformer.decoding.given_translations import Likelihood
from transformer.decoding.translator import Translation
from transformer.system import outputs


def as_lines(answers: Sequence[Translation], nbest: int, first: int = 0,
             drawn: bool = False) -> list[str]:
  """Returns translations, or n-best lists, as lines.

  Args:
    answers: the translations.
    nbest: the number of translations for each sentence; above 1, a line is
      number ||| text ||| score, and no text occurs twice.
    first: the number of the first sentence.
    drawn: whether the lists are samples, which are all given, a text as often as it was drawn.
  """
  if nbest == 1:
    return [answer.text for answer in answers]
  return [f'{number} ||| {text} ||| {score:.6f}' for number, answer in enumerate(answers, first)
          for text, score in (answer.nbest if drawn else distinct(answer.nbest))]


def distinct(nbest: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
  """Returns the texts of a list, best first, without those that occurred before in other pieces."""
  scores = {}
  for text, score in nbest:
    scores.setdefault(text, score)
  return list(scores.items())


def score_lines(found: Sequence[Likelihood]) -> list[str]:
  """Returns a line for each likelihood: log-probability, tab, tokens; `nan` for a pair too long."""
  return [('nan' if each.log_prob is None else f'{each.log_prob:.6f}') + f'\t{each.tokens}'
          for each in found]


def token_lines(likelihoods: Sequence[Likelihood]) -> list[str]:
  """Returns a JSON object for each likelihood, with the pieces and their log-probabilities."""
  return [json.dumps(pair._asdict(), ensure_ascii=False) for pair in likelihoods]


def write_lines(lines: Iterable[str], output: str):
  """Writes lines of UTF-8 to a file, or to standard output, which is `-`."""
  if output == '-':
    sys.stdout.reconfigure(encoding='utf-8', newline='\n')
    sys.stdout.writelines(line + '\n' for line in lines)
    sys.stdout.flush()
  else:
    outputs.write(Path(output).expanduser(), ''.join(line + '\n' for line in lines).encode())
