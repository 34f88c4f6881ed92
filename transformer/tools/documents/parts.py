"""Documents in parts that a model can translate, and put together again."""

from collections.abc import Sequence

import numpy as np

from transformer.data.encoding import encode_lines
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.evaluation.texts import Text
from transformer.tools.documents import line_ends


def cut(
  lines: Sequence[str], vocabulary: Vocabulary, most_tokens: int, most_lines: int
) -> tuple[list[range], list[list[int]]]:
  """Returns parts, as the numbers of their lines, and documents, as the numbers of their parts.

  A part has as many lines as fit into `most_tokens`, at least one, and at most `most_lines` if that
  is not 0. Blank lines are in none.
  """
  encoded = encode_lines(lines, vocabulary)
  parts = []
  documents = [[]]
  number = 0
  while number < len(lines):
    count = 1
    if encoded.lengths[number] == 1:
      documents.append([])
    else:
      fitting = np.count_nonzero(line_ends(encoded.select([number]), most_tokens))
      count = max(1, min(fitting, most_lines or fitting))
      documents[-1].append(len(parts))
      parts.append(range(number, number + count))
    number += count
  return parts, list(filter(None, documents))


def joined(
  text: Text, groups: Sequence[Sequence[int]], of_source: str, of_target: str
) -> Text:
  """Returns a text whose lines are groups of a text's lines, with separators of both languages."""

  def side(lines: Sequence[str], between: str) -> list[str]:
    return [between.join(lines[number] for number in group) for group in groups]

  references = [side(lines, of_target) for lines in text.references]
  return Text(text.name, side(text.sources, of_source), references)
