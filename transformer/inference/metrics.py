"""Scores of translations, by sacreBLEU and with its signatures, and whether systems differ."""

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import sacrebleu
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

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
RESAMPLES, TRIALS = 1000, 10_000


class Score(NamedTuple):
  """A corpus score and what it takes to compare it.

  Attributes:
    name: the metric's, or the protocol's of BLEU, as tables show it.
    score: percent.
    signature: sacreBLEU's, which says how it was computed, and what was done before.
    details: sacreBLEU's line; of BLEU: precisions, brevity penalty, lengths.
    interval: the ends of the 95 % interval of bootstrap resampling (Koehn, 2004); None
      where none was asked for.
  """

  name: str
  score: float
  signature: str
  details: str
  interval: tuple[float, float] | None = None


class Difference(NamedTuple):
  """How a system's score differs from a baseline's, and how likely that is by chance.

  Attributes:
    metric: `BLEU`, `chrF2++` or `TER`.
    baseline: its score, over all seeds together.
    system: the other's.
    bootstrap: p of paired bootstrap resampling (Koehn, 2004).
    randomisation: p of approximate randomisation (Riezler and Maxwell, 2005).
  """

  metric: str
  baseline: float
  system: float
  bootstrap: float
  randomisation: float


def corpus_bleu(translations: Sequence[str], references: Sequence[Sequence[str]],
                tokenize: str = '13a') -> Score:
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


def corpus_scores(translations: Sequence[str], references: Sequence[Sequence[str]],
                  tokenize: str) -> list[Score]:
  """BLEU, chrF2++ (Popović, 2017) and TER (Snover et al., 2006), each with its interval.

  Args:
    translations: as in `corpus_bleu`.
    references: as in `corpus_bleu`.
    tokenize: BLEU's tokenizer, as in `corpus_bleu`.

  Returns:
    The three in this order. An interval is of `RESAMPLES` samples of the sentences, drawn
    from sacreBLEU's seed, 12345 unless SACREBLEU_SEED is set.
  """
  scores = []
  for name, metric in _metrics(tokenize).items():
    result = metric.corpus_score(list(translations), [list(each) for each in references],
                                 n_bootstrap=RESAMPLES)
    metric.n_bootstrap = metric.seed = None  # The score itself is of no samples.
    mean, half = float(result._mean), float(result._ci)
    result._mean = -1.0  # Which it would put between the score and the details.
    scores.append(Score(name, result.score, str(metric.get_signature()), str(result),
                        (mean - half, mean + half)))
  return scores


def sentence_scores(translations: Sequence[str], references: Sequence[Sequence[str]],
                    tokenize: str) -> list[dict[str, float]]:
  """BLEU, chrF2++ and TER of each sentence by itself.

  BLEU is of those orders of n-grams that the sentence is long enough for.

  Args:
    translations: as in `corpus_bleu`.
    references: as in `corpus_bleu`.
    tokenize: BLEU's tokenizer, as in `corpus_bleu`.

  Returns:
    For every translation the score of each metric, by its name.
  """
  metrics = _metrics(tokenize, effective_order=True)
  return [{name: metric.sentence_score(translation, list(sides)).score
           for name, metric in metrics.items()}
          for translation, *sides in zip(translations, *references, strict=True)]


def differences(baseline: Sequence[Sequence[str]], system: Sequence[Sequence[str]],
                references: Sequence[Sequence[str]], tokenize: str) -> list[Difference]:
  """Tests whether two systems differ on one text, by sacreBLEU's two paired tests.

  Args:
    baseline: its translations of the text, by each of its seeds.
    system: those of the other, of as many seeds. The first is held against the first, and so
      on, as if the text went on.
    references: of the text, as in `corpus_bleu`.
    tokenize: BLEU's tokenizer, as in `corpus_bleu`.

  Returns:
    One for each metric.
  """
  sides = [[line for seed in each for line in seed] for each in (baseline, system)]
  repeated = [list(each) * len(baseline) for each in references]
  found = {}
  for kind, samples in (('bs', RESAMPLES), ('ar', TRIALS)):
    test = PairedTest(list(zip(('baseline', 'system'), sides, strict=True)), _metrics(tokenize),
                      repeated, kind, samples)
    _, found[kind] = test()
  told = []
  for name in _metrics(tokenize):
    scores = [result.score for result in found['bs'][name]]
    # sacreBLEU counts the samples that differ by more, of which there are none where all are alike.
    told.append(Difference(name, *scores, *(
        1.0 if scores[0] == scores[1] else found[kind][name][1].p_value for kind in ('bs', 'ar'))))
  return told


def bleu_by_protocol(translations: Sequence[str], references: Sequence[Sequence[str]],
                     tokenize: str, target_language: str) -> list[Score]:
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


class _PlainScores:
  """Gives every sample's score as a `float`; sacreBLEU cannot take the mean of several types."""

  def _compute_score_from_stats(self, stats):
    result = super()._compute_score_from_stats(stats)
    result.score = float(result.score)
    return result


class _Chrf(_PlainScores, sacrebleu.CHRF):
  pass


class _Ter(_PlainScores, sacrebleu.TER):
  pass


def _metrics(tokenize: str, effective_order: bool = False) -> dict[str, Metric]:
  return {'BLEU': sacrebleu.BLEU(tokenize=tokenize, force=True, effective_order=effective_order),
          'chrF2++': _Chrf(word_order=2), 'TER': _Ter()}


def _compound_split_bleu(translations: Sequence[str], references: Sequence[Sequence[str]],
                         tokenised: bool) -> Score:
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
           done_before: Mapping[str, str], **arguments) -> Score:
  """sacreBLEU's score under these arguments; its signature also says what was done before."""
  metric = sacrebleu.BLEU(**arguments)
  result = metric.corpus_score(list(translations), [list(each) for each in references])
  signature = metric.get_signature()
  for key, value in done_before.items():
    signature.update(key, value)
  return Score(name, result.score, str(signature), str(result))
