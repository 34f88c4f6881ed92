"""Significance tests of differences between systems, by sacreBLEU's paired bootstrap."""

import itertools
import os
from collections.abc import Sequence
from typing import Any

from sacrebleu.significance import PairedTest

from transformer.evaluation.metrics import sacrebleu_metric
from transformer.evaluation.scores import RESAMPLES


def p_values(
  name: str,
  systems: Sequence[Sequence[Sequence[str]]],
  references: Sequence[Sequence[str]],
  tokenize: str,
) -> list[float]:
  """Tests whether systems differ from the first system on one text, by one metric.

  The first seed of one system is compared with the first seed of the other, and so on, by
  concatenating the texts of all seeds.

  Args:
    name: `BLEU` or `chrF2++`.
    systems: for each system, the translations of the text by each seed.
    references: one or more lists of references, each of the length of the text.
    tokenize: BLEU's tokenizer.

  Returns:
    For each system after the first, the p-value of paired bootstrap resampling (Koehn, 2004): the
    probability, under the null hypothesis, of a difference at least this large.
  """
  joined = [tuple(itertools.chain(*seeds)) for seeds in systems]
  repeated = [list(lines) * len(systems[0]) for lines in references]
  metric = sacrebleu_metric(name, tokenize)
  # Use sacreBLEU's default seed, so that p-values are reproducible.
  os.environ.pop('SACREBLEU_SEED', None)
  named_systems: list[tuple[str, Sequence[str]]] = []
  for index, lines in enumerate(joined):
    named_systems.append((str(index), lines))
  test = PairedTest(named_systems, {name: metric}, repeated, 'bs', RESAMPLES)
  scores: dict[str, list[Any]] = test()[1]
  first, *others = scores[name]
  results = []
  for other in others:
    is_equal = other.score == first.score
    results.append(1.0 if is_equal else other.p_value)
  return results
