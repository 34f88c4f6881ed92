"""BLEU, chrF2++ and TER by sacreBLEU, with its signatures, intervals and significance tests."""

import importlib.metadata
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import sacrebleu
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from transformer.errors import UserError
from transformer.evaluation.compounds import split_compounds, tokenize_german
from transformer.evaluation.resampling import RESAMPLES, SEED, TRIALS, interval_95

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


class Difference(NamedTuple):
  """The scores of a baseline and a system, and how likely their difference is by chance.

  Attributes:
    metric: `BLEU`, `chrF2++` or `TER`.
    baseline: the baseline's score over all its seeds together, in percent.
    system: the system's score over all its seeds together, in percent.
    bootstrap: p of paired bootstrap resampling (Koehn, 2004).
    randomisation: p of approximate randomisation (Riezler and Maxwell, 2005).
  """

  metric: str
  baseline: float
  system: float
  bootstrap: float
  randomisation: float


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
  for number, reference in enumerate(references, 1):
    if len(reference) != len(translations):
      raise UserError(f'a reference must have a line for every translation; reference {number} '
                      f'has {len(reference)} lines, there are {len(translations)} translations')
  return _bleu(tokenize, translations, references, tokenize=tokenize, force=tokenize == 'none')


def corpus_chrf(translations: Sequence[str], references: Sequence[Sequence[str]]) -> float:
  """Computes chrF2++ (Popović, 2017) in percent; arguments as in `corpus_bleu`."""
  chrf = _metrics('13a')['chrF2++']
  return chrf.corpus_score(list(translations), [list(each) for each in references]).score


def corpus_scores(translations: Sequence[str], references: Sequence[Sequence[str]],
                  tokenize: str) -> list[Score]:
  """Computes BLEU, chrF2++ (Popović, 2017) and TER (Snover et al., 2006), each with its interval.

  An interval comes from 1,000 bootstrap samples of the sentences. Their seed is sacreBLEU's:
  the environment variable SACREBLEU_SEED, by default 12345.

  Args:
    translations, references, tokenize: as in `corpus_bleu`.
  """
  scores = []
  for name, metric in _metrics(tokenize).items():
    counts = metric._extract_corpus_statistics(list(translations),
                                               [list(each) for each in references])
    result = metric._aggregate_and_compute(counts)
    low, high = interval_95(list(_resampled(metric, counts)))
    scores.append(Score(name, result.score, str(metric.get_signature()), str(result),
                        (float(low), float(high))))
  return scores


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


def sentence_scores(translations: Sequence[str], references: Sequence[Sequence[str]],
                    tokenize: str) -> list[dict[str, float]]:
  """Computes BLEU, chrF2++ and TER of each sentence by itself.

  BLEU uses only the orders of n-grams for which the sentence is long enough.

  Args:
    translations, references, tokenize: as in `corpus_bleu`.

  Returns:
    The scores of each translation, in percent, by the name of the metric.
  """
  metrics = _metrics(tokenize, effective_order=True)
  return [{name: metric.sentence_score(translation, list(sides)).score
           for name, metric in metrics.items()}
          for translation, *sides in zip(translations, *references, strict=True)]


def sentence_utility(name: str, tokenize: str) -> Callable[[str, str], float]:
  """Returns a function (translation, reference) -> score of one sentence, in percent.

  Args:
    name: `chrF2++`, or `BLEU` of the orders for which the sentence is long enough.
    tokenize: BLEU's tokenizer, as in `corpus_bleu`.
  """
  metric = _metrics(tokenize, effective_order=True)[name]
  return lambda translation, reference: metric.sentence_score(translation, [reference]).score


def differences(baseline: Sequence[Sequence[str]], system: Sequence[Sequence[str]],
                references: Sequence[Sequence[str]], tokenize: str) -> list[Difference]:
  """Tests whether two systems differ on one text, by sacreBLEU's two paired tests.

  Args:
    baseline: the baseline's translations of the text, one sequence for each seed.
    system: the system's translations, for as many seeds. The tests compare the first seed of
      one with the first seed of the other, and so on, as if all were one long text.
    references: of the text, as in `corpus_bleu`.
    tokenize: BLEU's tokenizer, as in `corpus_bleu`.

  Returns:
    The difference in each metric.
  """
  sides = [[line for seed in each for line in seed] for each in (baseline, system)]
  repeated = [list(each) * len(baseline) for each in references]
  found = []
  for kind, samples in (('bs', RESAMPLES), ('ar', TRIALS)):
    test = PairedTest(list(zip(('baseline', 'system'), sides, strict=True)), _metrics(tokenize),
                      repeated, kind, samples)
    found.append(test()[1])
  # sacreBLEU counts the samples with a larger difference. An equal one counts, too: it comes from
  # each trial of the randomisation that swaps all sentences that differ, or none of them.
  changed = sum(one != two for one, two in zip(*sides, strict=True))
  ties = 0.0, 2.0 ** (1 - changed)
  return [Difference(name, *(result.score for result in found[0][name]), *(
      1.0 if results[name][0].score == results[name][1].score
      else min(1.0, results[name][1].p_value + tied)
      for results, tied in zip(found, ties, strict=True))) for name in _metrics(tokenize)]


def bleu_by_protocol(translations: Sequence[str], references: Sequence[Sequence[str]],
                     tokenize: str, target_language: str) -> list[Score]:
  """Computes BLEU by every usual protocol of publications.

  The protocols differ by up to 1.8 BLEU on one text (Post, 2018), so only scores of the same
  protocol can be compared.

  Args:
    translations, references: as in `corpus_bleu`.
    tokenize: the tokenizer of the headline, as in `corpus_bleu`.
    target_language: `de` adds the paper's BLEU, which splits compounds.

  Returns:
    The headline, which is the score of `corpus_bleu`, then the other protocols.

  Raises:
    UserError: a reference has another number of lines.
  """
  # Only the headline lets sacreBLEU warn of tokenised text.
  scores = [corpus_bleu(translations, references, tokenize)]
  scores += [_bleu(name, translations, references, force=True, **arguments)
             for name, arguments in _PROTOCOLS.items() if name != tokenize]
  if target_language == 'de':
    scores.append(_compound_split_bleu(translations, references, tokenised=tokenize == 'none'))
  return scores


def _metrics(tokenize: str, effective_order: bool = False) -> dict[str, Metric]:
  asian = tokenize in _WITHOUT_SPACES
  return {'BLEU': sacrebleu.BLEU(tokenize=tokenize, force=True, effective_order=effective_order),
          'chrF2++': sacrebleu.CHRF(word_order=2),
          'TER': sacrebleu.TER(normalized=asian, asian_support=asian)}


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
  result = metric.corpus_score(list(translations), [list(each) for each in references])
  signature = metric.get_signature()
  for key, value in (preprocessing or {}).items():
    signature.update(key, value)
  return Score(name, result.score, str(signature), str(result))
