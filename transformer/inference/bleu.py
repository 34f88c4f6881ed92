"""BLEU, by sacreBLEU and with its signature."""

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import sacrebleu

from transformer.errors import UserError
from transformer.inference.compounds import split_compounds, tokenize_german

# Protocols that published scores follow, and what sacreBLEU is told for each.
_PROTOCOLS = {
    '13a': {'tokenize': '13a'},
    'intl': {'tokenize': 'intl'},
    '13a lower-cased': {'tokenize': '13a', 'lowercase': True},
    'none': {'tokenize': 'none'},
}
COMPOUND_SPLIT = 'compound-split'


class Bleu(NamedTuple):
  """A corpus score and what it takes to compare it.

  Attributes:
    name: the protocol's, as tables show it.
    score: 0 to 100.
    signature: sacreBLEU's, which says how it was computed, and what was done before.
    details: sacreBLEU's line: precisions, brevity penalty, lengths.
  """

  name: str
  score: float
  signature: str
  details: str


def corpus_bleu(translations: Sequence[str], references: Sequence[Sequence[str]],
                tokenize: str = '13a') -> Bleu:
  """Scores translations against one or more references (Papineni et al., 2002; Post, 2018).

  Args:
    translations: one a sentence, detokenised unless `tokenize` is `none`.
    references: one or more sequences, each as long as the translations.
    tokenize: sacreBLEU's tokenizer. Unless it is `none`, which says that the text
      comes tokenised, sacreBLEU warns of text that looks so.

  Returns:
    The score, cased, with its signature.

  Raises:
    UserError: a reference has another number of lines.
  """
  for number, reference in enumerate(references, 1):
    if len(reference) != len(translations):
      raise UserError(f'a reference must have a line for every translation; reference {number} '
                      f'has {len(reference)} lines, there are {len(translations)} translations')
  return _score(tokenize, translations, references, {}, tokenize=tokenize,
                force=tokenize == 'none')


def bleu_by_protocol(translations: Sequence[str], references: Sequence[Sequence[str]],
                     tokenize: str, target_language: str) -> list[Bleu]:
  """Scores translations by every protocol that published scores follow.

  Common ways of scoring one text differ by up to 1.8 BLEU (Post, 2018), so that a score can
  only be held against one of the same protocol.

  Args:
    translations: as in `corpus_bleu`.
    references: as in `corpus_bleu`.
    tokenize: the tokenizer of the headline, as in `corpus_bleu`.
    target_language: `de` adds the paper's BLEU, which splits compounds.

  Returns:
    The headline, which is what `corpus_bleu` returns, then the others.

  Raises:
    UserError: a reference has another number of lines.
  """
  # sacreBLEU warns once, of the headline.
  scores = [corpus_bleu(translations, references, tokenize)]
  scores += [_score(name, translations, references, {}, force=True, **arguments)
             for name, arguments in _PROTOCOLS.items() if name != tokenize]
  if target_language == 'de':
    scores.append(_compound_split_bleu(translations, references, tokenised=tokenize == 'none'))
  return scores


def _compound_split_bleu(translations: Sequence[str], references: Sequence[Sequence[str]],
                         tokenised: bool) -> Bleu:
  """The paper's BLEU for German: Moses' tokens, compounds split, n-grams not smoothed.

  Source: `tensor2tensor/utils/get_ende_bleu.sh`, which ends in Moses' `multi-bleu.perl`. Its
  references came tokenised and were not tokenised again; here, no text is that comes so.
  """
  if tokenised:
    done_before = {'tok': COMPOUND_SPLIT}
  else:
    translations = tokenize_german(translations)
    references = [tokenize_german(each) for each in references]
    done_before = {'tok': f'moses-de+{COMPOUND_SPLIT}',
                   'sacremoses': importlib.metadata.version('sacremoses')}
  return _score(COMPOUND_SPLIT, [split_compounds(line) for line in translations],
                [[split_compounds(line) for line in each] for each in references],
                done_before, tokenize='none', smooth_method='none', force=True)


def _score(name: str, translations: Sequence[str], references: Sequence[Sequence[str]],
           done_before: Mapping[str, str], **arguments) -> Bleu:
  """sacreBLEU's score under these arguments; its signature also says what was done before."""
  metric = sacrebleu.BLEU(**arguments)
  result = metric.corpus_score(list(translations), [list(each) for each in references])
  signature = metric.get_signature()
  for key, value in done_before.items():
    signature.update(key, value)
  return Bleu(name, result.score, str(signature), str(result))
