"""Scores with 95 % intervals by bootstrap resampling, and the lines that show them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

# As in sacreBLEU: bootstrap samples, trials of approximate randomisation, and the seed of both.
RESAMPLES, TRIALS, SEED = 1000, 10_000, 12345


class Score(NamedTuple):
  """The score of a text.

  Attributes:
    name: the metric or the BLEU protocol, as tables show it.
    score: of all sentences together; percent for sacreBLEU's metrics.
    signature: how it was computed.
    details: sacreBLEU's line; for BLEU it has precisions, brevity penalty and lengths.
    interval: both ends of the 95 % interval: the scores of two samples; None is not computed.
    sentences: of each sentence, or none.
  """

  name: str
  score: float
  signature: str
  details: str = ''
  interval: tuple[float, float] | None = None
  sentences: Sequence[float] = ()

  def to_json(self) -> dict[str, Any]:
    """Returns the row of the score in a result."""
    return {'name': self.name, 'score': self.score,
            'interval_95': self.interval and list(self.interval), 'signature': self.signature}


def resampled(counts: Sequence[Any]) -> np.ndarray:
  """Returns the sums of what is counted in each sentence over bootstrap samples (Koehn, 2004).

  The samples are those of sacreBLEU, and the same for as many sentences. The sums are the first
  axis. One sample at a time is in memory.
  """
  rng, counts = np.random.default_rng(SEED), np.asarray(counts)
  return np.stack([counts[rng.choice(len(counts), size=len(counts))].sum(axis=0)
                   for _ in range(RESAMPLES)])


def interval_95(scores: Sequence[float] | np.ndarray) -> tuple[float, float]:
  """Returns both ends of the 95 % interval of samples' scores: the scores of two of them."""
  return tuple(np.percentile(scores, (2.5, 97.5), method='nearest').tolist())


def scored(names: Sequence[str], signature: str, counts: Sequence[Sequence[int]],
           figures: Callable[[np.ndarray], np.ndarray]) -> list[dict[str, Any]]:
  """Returns metrics that are functions of summed counts, as JSON data.

  Args:
    names: the names of M metrics.
    signature: how they are computed.
    counts: C counts of each sentence.
    figures: computes the metrics [M, ...] from sums of the counts [C, ...].
  """
  scores, samples = figures(np.sum(counts, axis=0)).tolist(), figures(resampled(counts).T)
  return [Score(name, score, signature, interval=interval_95(of_samples)).to_json()
          for name, score, of_samples in zip(names, scores, samples, strict=True)]


def metric_lines(metrics: Sequence[dict[str, Any]]) -> list[str]:
  """Returns a line for each row of `Score.to_json`."""
  lines = []
  for metric in metrics:
    interval = '{:.2f} … {:.2f}'.format(*metric['interval_95']) if metric['interval_95'] else ''
    lines.append(f'  {metric["name"]:9}  {metric["score"]:6.2f}  {interval:15}  '
                 f'{metric["signature"]}')
  return lines
