"""Significance tests of differences between systems, by sacreBLEU's paired tests."""

import itertools
import operator
import os
from collections.abc import Sequence
from typing import Any

from sacrebleu.significance import PairedTest

from transformer.evaluation.metrics import metric_of
from transformer.evaluation.scores import RESAMPLES, TRIALS


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
  sides = [tuple(itertools.chain(*seeds)) for seeds in (baseline, *systems)]
  repeated = tuple(tuple(lines) * len(baseline) for lines in references)
  metric = metric_of(name, tokenize)
  # sacreBLEU's own seed, so that p is the same at each start.
  os.environ.pop('SACREBLEU_SEED', None)

  def test(kind: str, samples: int):
    named = list(enumerate(sides))
    return PairedTest(named, {name: metric}, repeated, kind, samples)()[1][name]

  first, *drawn = test('bs', RESAMPLES)
  _, *swapped = test('ar', TRIALS)
  tested = []
  for side, by_bootstrap, by_swaps in zip(sides[1:], drawn, swapped, strict=True):
    # sacreBLEU counts the samples with a larger difference. An equal one counts, too: it comes from
    # each trial of the randomisation that swaps all sentences that differ, or none of them.
    ties = 2.0 ** (1 - sum(map(operator.ne, sides[0], side)))
    is_equal = by_bootstrap.score == first.score
    tested.append(
      {
        'metric': name,
        'baseline': first.score,
        'system': by_bootstrap.score,
        'bootstrap': 1.0 if is_equal else by_bootstrap.p_value,
        'randomisation': 1.0 if is_equal else min(1.0, by_swaps.p_value + ties),
      }
    )
  return tested
