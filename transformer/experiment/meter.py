"""Sums of the metrics of all updates between two lines of `metrics.jsonl`."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax

from transformer.model.flops import peak_flops, update_flops
from transformer.training.objective import SUMS, TAKEN, Objective

# Metrics from a clock, which differ between runs that are otherwise equal bit for bit.
WALL_CLOCK = ('tokens_per_second', 'flops_utilisation', 'train/data_wait')


class Meter:
  """Sums the metrics of steps since the last line of metrics.

  Times count updates alone, without the first of the process. A checkpoint keeps `sums`, by name,
  so that a resumed run writes the lines of an uninterrupted one.
  """

  def __init__(
    self,
    sums: dict[str, float],
    positions: int,
    utilisation: Callable[[float, float], float] | None = None,
  ):
    """Starts from earlier sums, or none; a batch has so many target positions."""
    self._positions, self._utilisation = positions, utilisation
    self._clock: float | None = None
    self._waiting = 0.0
    self._restart(dict(sums))

  def watch(self, batches: Iterable) -> Iterator:
    """Yields batches, and measures the time spent waiting for each."""
    before = time.perf_counter()
    for batch in batches:
      self._waiting += time.perf_counter() - before
      yield batch
      before = time.perf_counter()

  def add(self, metrics: dict[str, Any], skipped: bool = False):
    """Adds the metrics and the time of one step; for a skipped step only the time."""
    now = time.perf_counter()
    if self._clock is not None:
      self._seconds += now - self._clock
      self._waited += self._waiting
      self._source_tokens += float(metrics['source_tokens'])
      self._target_tokens += float(metrics['weight'])
    self._clock, self._waiting = now, 0.0
    if not skipped:
      for name, value in {**metrics, 'steps': 1}.items():
        self.sums[name] = self.sums.get(name, 0.0) + float(value)

  def restart_clock(self):
    """Excludes the time since the last step, which was spent on something else."""
    self._clock = time.perf_counter()

  def take(self, learning_rate: float) -> dict[str, float]:
    """Returns the metrics of the steps since the last call, and starts anew.

    Leaves out `WALL_CLOCK` if no step was timed.
    """
    # If every step was skipped, there is no loss.
    sums = {
      **dict.fromkeys(('loss', 'nll', 'gradient_norm'), math.nan),
      **dict.fromkeys(('weight', 'steps', 'spikes'), 0.0),
      **self.sums,
    }
    tokens, steps = max(sums['weight'], 1.0), max(sums['steps'], 1.0)
    values = {
      'train/loss': sums['loss'] / tokens,
      'train/perplexity': perplexity(sums['nll'] / tokens),
      'train/gradient_norm': sums['gradient_norm'] / steps,
      'train/learning_rate': learning_rate,
      'train/spikes': sums['spikes'],
      'train/fill': sums['weight'] / (steps * self._positions),
      **{
        f'train/{name}': total / tokens
        for name, total in self.sums.items()
        if name not in (*SUMS, *TAKEN)
      },
    }
    if seconds := self._seconds:
      values |= {
        'train/data_wait': self._waited / seconds,
        'tokens_per_second': self._target_tokens / seconds,
      }
      if self._utilisation is not None:
        values['flops_utilisation'] = self._utilisation(
          self._source_tokens / seconds, self._target_tokens / seconds
        )
    self._restart({})
    return values

  def _restart(self, sums: dict[str, float]):
    self.sums = sums
    self._seconds = self._waited = self._source_tokens = self._target_tokens = 0.0


def perplexity(loss: float) -> float:
  """Returns exp of a loss in nats per token, or infinity where it overflows."""
  return math.exp(loss) if not loss >= 700 else math.inf


def utilisation(
  model: Any, devices: int, objective: Objective
) -> Callable[[float, float], float] | None:
  """Returns a function from source and target tokens per second to the share of a known peak."""
  peak = peak_flops(jax.devices()[0].device_kind)
  if peak is None:
    return None
  by_token = update_flops(model, objective.passes, objective.extra_models)
  if by_token is None:
    return None
  source, target = by_token
  return lambda source_speed, target_speed: (
    (source * source_speed + target * target_speed) / (peak * devices)
  )
