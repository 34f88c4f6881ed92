"""Scores that are computed from counts in each sentence, for tools with metrics of their own."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from transformer.evaluation.scores import Score, interval_95, resampled


def scored(
  names: Sequence[str],
  signature: str,
  counts: Sequence[Sequence[int]],
  figures: Callable[[np.ndarray], np.ndarray],
) -> list[dict[str, Any]]:
  """Returns the rows of metrics; `figures` computes them [M, ...] from sums of counts [C, ...]."""
  scores = figures(np.sum(counts, axis=0)).tolist()
  samples = figures(resampled(counts).T)
  return [
    Score(name, score, signature, interval=interval_95(of_samples)).to_json()
    for name, score, of_samples in zip(names, scores, samples, strict=True)
  ]
