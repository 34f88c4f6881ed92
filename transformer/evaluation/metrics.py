"""BLEU, chrF2++ and TER by sacreBLEU, with its signatures and intervals."""

import importlib.metadata
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import sacrebleu
from sacrebleu.metrics.base import Metric

from transformer.errors import UserError
from transformer.evaluation.compounds import split_compounds, tokenize_german
from transformer.evaluation.resampling import RESAMPLES, SEED, interval_95

NAMES = ('BLEU', 'chrF2++', 'TER')
# sacreBLEU's TER takes a second for a line of 100 words, and five for one of 200.
MOST_TER_WORDS = 100
# The usual BLEU protocols of publications, and sacreBLEU's arguments for each.
_PROTOCOLS = {
    '13a': {'tokenize': '13a'},
    'intl': {'tokenize': 'intl'},
    '13a lower-cased': {'tokenize': '13a', 'lowercase': True},
    'none': {'tokenize': 'none'},
}
# Tokenizers for text without spaces between words, whose TER splits Asian characters.
_WITHOUT_SPACES = ('zh', 'ja-mecab', 'ko-mecab', 'char')
_COMPOUND_SPLIT = 'compound-split'


class Score(NamedTuple):
  """The score of a corpus, with the facts that make it comparable.

  Attributes:
    name: the metric or the BLEU protocol, as tables show it.
    score: percent.
    signature: sacreBLEU's description of the computation, with any preprocessing.
    details: sacreBLEU's line; for BLEU it has precisions, brevity penalty and lengths.
    interval: both ends of the 95 % interval of bootstrap resampling (Koehn, 2004), in percent:
      the scores of two samples; None if it was not computed.
  """

  name: str
  score: float
  signature: str
  details: str
  interval: tuple[float, float] | None = None


def check_tokenizer(tokenize: str):
  """Checks that a tokenizer of sacreBLEU has the packages that it needs.

  Raises:
    UserError: a package is missing.
  """
  try:
    sacrebleu.BLEU(tokenize=tokenize)
  except RuntimeError as error:
    raise UserError(f'decode.bleu_tokenize={tokenize} needs more packages; install them with: '
                    f'pip install "sacrebleu[{tokenize[:2]}]"') from error


def corpus_bleu(translations: Sequence[str], references: Sequence[Sequence[str]],
                tokenize: str = '13a') -> Score:
  """Computes cased BLEU with one or more references (Papineni et al., 2002; Post, 2018).

  Args:
    translations: one sentence each, detokenised unless `tokenize` is `none`.
    references: one or more sequences, each as long as the translations.
    tokenize: sacreBLEU's tokenizer; `none` is for text that is tokenised already. With any
      other tokenizer, sacreBLEU warns if the text looks tokenised.

  Raises:
    UserError: a reference has another number of lines.
  """
  return _bleu(tokenize, translations, references, tokenize=tokenize, force=tokenize == 'none')


def corpus_chrf(translations: Sequence[str], references: Sequence[Sequence[str]]) -> float:
  """Computes chrF2++ (Popović, 2017) in percent; arguments as in `corpus_bleu`."""
  return metric_of('chrF2++', '13a').corpus_score(*_parallel(translations, references)).score


def score_text(name: str, translations: Sequence[str], references: Sequence[Sequence[str]],
               tokenize: str) -> tuple[Score, list[float]]:
  """Computes a metric of all sentences together, and of each by itself, from the same counts.

  An interval comes from 1,000 bootstrap samples of the sentences. Their seed is sacreBLEU's:
  the environment variable SACREBLEU_SEED, by default 12345.

  Args:
    name: one of `NAMES`: BLEU, chrF2++ (Popović, 2017) or TER (Snover et al., 2006).
    translations, references, tokenize: as in `corpus_bleu`.

  Returns:
    The score with its interval; and the score of each sentence, in percent. BLEU of a sentence
    uses only the orders of n-grams for which it is long enough.

  Raises:
    UserError: a reference has another number of lines.
  """
  metric = metric_of(name, tokenize, force=tokenize == 'none')
  counts = metric._extract_corpus_statistics(*_parallel(translations, references))
  result = metric._aggregate_and_compute(counts)
  low, high = interval_95(list(_resampled(metric, counts)))
  alone = metric_of(name, tokenize, effective_order=True)
  return (Score(name, result.score, str(metric.get_signature()), str(result),
                (float(low), float(high))),
          [alone._compute_score_from_stats(each).score for each in counts])


def too_long_for_ter(translations: Sequence[str], references: Sequence[Sequence[str]],
                     tokenize: str) -> int:
  """Returns how many sentences have more than `MOST_TER_WORDS` words on a side, as TER counts."""
  words = metric_of('TER', tokenize)._preprocess_segment
  return sum(any(len(words(line).split()) > MOST_TER_WORDS for line in lines)
             for lines in zip(translations, *references, strict=True))


def _resampled(metric: Metric, counts: Sequence[Sequence[float]]) -> Iterator[float]:
  """Yields the scores of sacreBLEU's bootstrap samples.

  Its own function holds all samples at once, which takes 100 kB a sentence.
  """
  seed = os.environ.get('SACREBLEU_SEED', str(SEED))
  rng = np.random.default_rng(None if seed.lower() == 'none' else int(seed))
  counts = np.array(counts)
  for _ in range(RESAMPLES):
    sample = counts[rng.choice(len(counts), size=len(counts))]
    yield metric._compute_score_from_stats(sample.sum(axis=0)).score


def other_protocols(translations: Sequence[str], references: Sequence[Sequence[str]],
                    tokenize: str, target_language: str) -> list[Score]:
  """Computes BLEU by every usual protocol of publications but the one of `tokenize`.

  The protocols differ by up to 1.8 BLEU on one text (Post, 2018), so only scores of the same
  protocol can be compared.

  Args:
    translations, references, tokenize: as in `corpus_bleu`.
    target_language: `de` adds the paper's BLEU, which splits compounds.

  Raises:
    UserError: a reference has another number of lines.
  """
  # Only the headline lets sacreBLEU warn of tokenised text.
  scores = [_bleu(name, translations, references, force=True, **arguments)
            for name, arguments in _PROTOCOLS.items() if name != tokenize]
  if target_language == 'de':
    scores.append(_compound_split_bleu(translations, references, tokenised=tokenize == 'none'))
  return scores


def metric_of(name: str, tokenize: str, force: bool = True,
              effective_order: bool = False) -> Metric:
  """Returns a metric of `NAMES`; only BLEU has a tokenizer, its warning and its orders."""
  if name == 'BLEU':
    return sacrebleu.BLEU(tokenize=tokenize, force=force, effective_order=effective_order)
  if name == 'chrF2++':
    return sacrebleu.CHRF(word_order=2)
  asian = tokenize in _WITHOUT_SPACES
  return sacrebleu.TER(normalized=asian, asian_support=asian)


def _parallel(translations: Sequence[str], references: Sequence[Sequence[str]]
              ) -> tuple[list[str], list[list[str]]]:
  """Returns the texts as sacreBLEU takes them; refuses a reference of another length."""
  for number, reference in enumerate(references, 1):
    if len(reference) != len(translations):
      raise UserError(f'a reference must have a line for every translation; reference {number} '
                      f'has {len(reference)} lines, there are {len(translations)} translations')
  return list(translations), list(map(list, references))


def _compound_split_bleu(translations: Sequence[str], references: Sequence[Sequence[str]],
                         tokenised: bool) -> Score:
  """Computes the paper's BLEU for German: Moses' tokens, split compounds, no smoothing.

  Source: `tensor2tensor/utils/get_ende_bleu.sh`, which calls Moses' `multi-bleu.perl`. The
  script tokenises translations, but not its references, which are tokenised already. Here
  Moses tokenises both, or neither if they are tokenised already.
  """
  if tokenised:
    preprocessing = {'tok': _COMPOUND_SPLIT}
  else:
    translations = tokenize_german(translations)
    references = [tokenize_german(each) for each in references]
    preprocessing = {'tok': f'moses-de+{_COMPOUND_SPLIT}',
                     'sacremoses': importlib.metadata.version('sacremoses')}
  return _bleu(_COMPOUND_SPLIT, [split_compounds(line) for line in translations],
               [[split_compounds(line) for line in each] for each in references],
               preprocessing, tokenize='none', smooth_method='none', force=True)


def _bleu(name: str, translations: Sequence[str], references: Sequence[Sequence[str]],
          preprocessing: dict[str, str] | None = None, **arguments) -> Score:
  """Computes BLEU by sacreBLEU's `arguments`; `preprocessing` has entries for the signature."""
  metric = sacrebleu.BLEU(**arguments)
  result = metric.corpus_score(*_parallel(translations, references))
  signature = metric.get_signature()
  for key, value in (preprocessing or {}).items():
    signature.update(key, value)
  return Score(name, result.score, str(signature), str(result))
