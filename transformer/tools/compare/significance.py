"""Significance tests of differences between systems, by sacreBLEU's paired tests."""

import functools
import operator
import os
from collections.abc import Sequence
from typing import Any

from sacrebleu.significance import PairedTest

from transformer.evaluation.metrics import metric_of
from transformer.evaluation.scores import RESAMPLES, SEED_VARIABLE, TRIALS


def differences(
  name: str,
  baseline: Sequence[Sequence[str]],
  systems: Sequence[Sequence[Sequence[str]]],
  references: Sequence[Sequence[str]],
  tokenize: str,
) -> list[dict[str, Any]]:
  """Tests by a metric whether systems differ from a baseline on one text.

  A system has translations of the text for each seed. The tests compare the first seed of one with
  the first seed of the other, and so on, as if all were one long text. Returns for each system the
  scores in percent, and how likely the difference is by chance: p of paired `bootstrap` resampling
  (Koehn, 2004) and of approximate `randomisation` (Riezler and Maxwell, 2005).
  """
  sides = [tuple(line for seed in system for line in seed) for system in (baseline, *systems)]
  repeated = tuple(tuple(lines) * len(baseline) for lines in references)
  metric = metric_of(name, tokenize)
  # Both tests need the same counts, and TER takes long to count. sacreBLEU 2.6.0 has no public
  # function that takes counts, so its private one is cached.
  metric._extract_corpus_statistics = functools.cache(metric._extract_corpus_statistics)
  if not os.getenv(SEED_VARIABLE):  # sacreBLEU fails if the variable is empty.
    os.environ.pop(SEED_VARIABLE, None)
  bootstrap, randomisation = (
    PairedTest(list(enumerate(sides)), {name: metric}, repeated, kind, samples)()[1][name]
    for kind, samples in (('bs', RESAMPLES), ('ar', TRIALS))
  )
  tested = []
  for side, drawn, swapped in zip(sides[1:], bootstrap[1:], randomisation[1:], strict=True):
    # sacreBLEU counts the samples with a larger difference. An equal one counts, too: it comes from
    # each trial of the randomisation that swaps all sentences that differ, or none of them.
    ties = 2.0 ** (1 - sum(map(operator.ne, sides[0], side)))
    p, q = drawn.p_value, min(1.0, swapped.p_value + ties)
    if drawn.score == bootstrap[0].score:
      p = q = 1.0
    tested.append(
      {
        'metric': name,
        'baseline': bootstrap[0].score,
        'system': drawn.score,
        'bootstrap': p,
        'randomisation': q,
      }
    )
  return tested
