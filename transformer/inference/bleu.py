"""BLEU, by sacreBLEU and with its signature."""

from collections.abc import Sequence
from typing import NamedTuple

import sacrebleu

from transformer.errors import UserError


class Bleu(NamedTuple):
  """A corpus score and what it takes to compare it.

  Attributes:
    score: 0 to 100.
    signature: sacreBLEU's, which says how it was computed.
    details: sacreBLEU's line: precisions, brevity penalty, lengths.
  """

  score: float
  signature: str
  details: str


def corpus_bleu(translations: Sequence[str], references: Sequence[Sequence[str]],
                tokenize: str = '13a') -> Bleu:
  """Scores translations against one or more references (Papineni et al., 2002; Post, 2018).

  Args:
    translations: one a sentence, detokenised unless `tokenize` is `none`.
    references: one or more sequences, each as long as the translations.
    tokenize: sacreBLEU's tokenizer.

  Returns:
    The score, cased, with its signature.

  Raises:
    UserError: a reference has another number of lines.
  """
  for number, reference in enumerate(references, 1):
    if len(reference) != len(translations):
      raise UserError(f'a reference must have a line for every translation; reference {number} '
                      f'has {len(reference)} lines, there are {len(translations)} translations')
  metric = sacrebleu.BLEU(tokenize=tokenize)
  result = metric.corpus_score(list(translations), [list(each) for each in references])
  return Bleu(result.score, str(metric.get_signature()), str(result))
