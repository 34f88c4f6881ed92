"""Bootstrap resampling of scores that are functions of counts summed over sentences."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# As in sacreBLEU: bootstrap samples, trials of approximate randomisation, and the seed of both.
RESAMPLES, TRIALS, SEED = 1000, 10_000, 12345


def resamples(sentences: int) -> np.ndarray:
  """Returns how often each bootstrap sample has each sentence, [samples, sentences]."""
  return np.random.default_rng(SEED).multinomial(
      sentences, [1 / sentences] * sentences, size=RESAMPLES)


def interval_95(scores: Sequence[float] | np.ndarray) -> np.ndarray:
  """Returns both ends of the 95 % interval: percentiles, each of them the score of a sample.

  Args:
    scores: the scores of bootstrap samples, on the last axis.
  """
  return np.percentile(scores, (2.5, 97.5), axis=-1, method='nearest')


def scored(names: Sequence[str], signature: str, counts: Sequence[Sequence[int]],
           figures: Callable[[np.ndarray], np.ndarray]) -> list[dict[str, Any]]:
  """Returns metrics with their 95 % intervals, as JSON data.

  Args:
    names: the names of M metrics.
    signature: how they are computed.
    counts: C counts of each sentence.
    figures: computes the metrics [M, ...] from sums of the counts [C, ...].
  """
  counts = np.array(counts)
  scores = figures(counts.sum(axis=0)).tolist()
  intervals = interval_95(figures((resamples(len(counts)) @ counts).T)).T.tolist()
  return [{'name': name, 'score': score, 'interval_95': interval, 'signature': signature}
          for name, score, interval in zip(names, scores, intervals, strict=True)]


def metric_lines(metrics: Sequence[dict[str, Any]]) -> list[str]:
  """Returns a line for each metric, as in `scored`: with its interval, if any, and signature."""
  lines = []
  for metric in metrics:
    ends = metric['interval_95']
    interval = '{:.2f} … {:.2f}'.format(*ends) if ends else ''
    lines.append(f'  {metric["name"]:9}  {metric["score"]:6.2f}  {interval:15}  '
                 f'{metric["signature"]}')
  return lines
