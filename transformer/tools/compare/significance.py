"""Significance tests of differences between systems, by sacreBLEU's paired tests."""

import functools
import operator
from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.significance import PairedTest

from transformer.evaluation.metrics import metric_of
from transformer.evaluation.resampling import RESAMPLES, TRIALS


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


def differences(name: str, baseline: Sequence[Sequence[str]],
                systems: Sequence[Sequence[Sequence[str]]], references: Sequence[Sequence[str]],
                tokenize: str) -> list[Difference]:
  """Tests whether systems differ from a baseline on one text, by sacreBLEU's two paired tests.

  Args:
    name: the metric, one of `NAMES`.
    baseline: the baseline's translations of the text, one sequence for each seed.
    systems: the translations of each system, for as many seeds. The tests compare the first seed
      of one with the first seed of the other, and so on, as if all were one long text.
    references: of the text, as in `corpus_bleu`.
    tokenize: BLEU's tokenizer, as in `corpus_bleu`.

  Returns:
    The difference of each system.
  """
  sides = [tuple(line for seed in each for line in seed) for each in (baseline, *systems)]
  repeated = tuple(tuple(each) * len(baseline) for each in references)
  metric = metric_of(name, tokenize)
  # Both tests need the same counts, and TER takes long to count.
  metric._extract_corpus_statistics = functools.cache(metric._extract_corpus_statistics)
  tests = [PairedTest(list(enumerate(sides)), {name: metric}, repeated, kind, samples)()[1][name]
           for kind, samples in (('bs', RESAMPLES), ('ar', TRIALS))]
  tested = []
  for number, side in enumerate(sides[1:], 1):
    scores = [tests[0][place].score for place in (0, number)]
    # sacreBLEU counts the samples with a larger difference. An equal one counts, too: it comes from
    # each trial of the randomisation that swaps all sentences that differ, or none of them.
    changed = sum(map(operator.ne, sides[0], side))
    p_values = [min(1.0, test[number].p_value + ties)
                for test, ties in zip(tests, (0.0, 2.0 ** (1 - changed)), strict=True)]
    p_values = (1.0, 1.0) if scores[0] == scores[1] else p_values
    tested.append(Difference(name, *scores, *p_values))
  return tested
