"""Significance tests of differences between systems, by sacreBLEU's paired tests."""

import functools
import operator
from collections.abc import Sequence
from typing import Any

from sacrebleu.significance import PairedTest

from transformer.evaluation.metrics import metric_of
from transformer.evaluation.scores import RESAMPLES, TRIALS


def differences(name: str, baseline: Sequence[Sequence[str]],
                systems: Sequence[Sequence[Sequence[str]]], references: Sequence[Sequence[str]],
                tokenize: str) -> list[dict[str, Any]]:
  """Tests by a metric whether systems differ from a baseline on one text.

  A system has translations of the text for each seed. The tests compare the first seed of one with
  the first seed of the other, and so on, as if all were one long text. Returns for each system the
  scores in percent, and how likely the difference is by chance: p of paired `bootstrap` resampling
  (Koehn, 2004) and of approximate `randomisation` (Riezler and Maxwell, 2005).
  """
  sides = [tuple(line for seed in system for line in seed) for system in (baseline, *systems)]
  repeated = tuple(tuple(lines) * len(baseline) for lines in references)
  metric = metric_of(name, tokenize)
  # Both tests need the same counts, and TER takes long to count.
  metric._extract_corpus_statistics = functools.cache(metric._extract_corpus_statistics)
  bootstrap, randomisation = (
      PairedTest(list(enumerate(sides)), {name: metric}, repeated, kind, samples)()[1][name]
      for kind, samples in (('bs', RESAMPLES), ('ar', TRIALS)))
  tested = []
  for number, side in enumerate(sides[1:], 1):
    ours, theirs = bootstrap[0].score, bootstrap[number].score
    # sacreBLEU counts the samples with a larger difference. An equal one counts, too: it comes from
    # each trial of the randomisation that swaps all sentences that differ, or none of them.
    ties = 2.0 ** (1 - sum(map(operator.ne, sides[0], side)))
    p, q = bootstrap[number].p_value, min(1.0, randomisation[number].p_value + ties)
    p, q = (1.0, 1.0) if ours == theirs else (p, q)
    tested.append({'metric': name, 'baseline': ours, 'system': theirs, 'bootstrap': p,
                   'randomisation': q})
  return tested
