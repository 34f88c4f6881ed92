"""Accumulates the metrics of the training steps between two lines of `metrics.jsonl`."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import jax

from transformer.model.building import Model
from transformer.model.flops import peak_flops, train_flops_per_token
from transformer.training.objective import REQUIRED_SUMS, RESERVED_METRICS, Objective

# Wall-clock metrics, which differ between runs that are otherwise bit-identical.
WALL_CLOCK = ('tokens_per_second', 'flops_utilization', 'train/data_wait')


class Meter:
  """Accumulates the metrics of training steps since the last line of `metrics.jsonl`.

  Times cover only training steps, and exclude the first step of the process. A checkpoint stores
  `sums`, by name, so that a resumed run writes the same lines as an uninterrupted one.
  """

  def __init__(
    self,
    sums: Mapping[str, float],
    positions: int,
    utilization_per_token_rate: tuple[float, float] | None = None,
  ):
    """Starts from earlier sums, or {}.

    Args:
      positions: target positions per batch.
      utilization_per_token_rate: the return value of the function of this name.
    """
    self._positions = positions
    self._utilization_per_token_rate = utilization_per_token_rate
    self._clock: float | None = None
    self._waiting = 0.0
    self.sums = Counter(sums)
    self._timed = Counter()

  def measure_wait(self, batches: Iterable) -> Iterator:
    """Yields batches, and measures the time spent waiting for each."""
    start = time.perf_counter()
    for batch in batches:
      self._waiting += time.perf_counter() - start
      yield batch
      start = time.perf_counter()

  def add(self, metrics: Mapping, skipped: bool = False):
    """Adds the metrics and the time of one step; for a skipped step, only the time."""
    now = time.perf_counter()
    if self._clock is not None:
      self._timed.update(
        seconds=now - self._clock,
        waited=self._waiting,
        source_tokens=float(metrics['source_tokens']),
        target_tokens=float(metrics['weight']),
      )
    self._clock = now
    self._waiting = 0.0
    if not skipped:
      self.sums.update({name: float(value) for name, value in metrics.items()})
      self.sums['steps'] += 1.0

  def restart_clock(self):
    """Excludes the time since the last step, which was not spent on training."""
    self._clock = time.perf_counter()

  def flush(self, learning_rate: float) -> dict[str, float]:
    """Returns the metrics of the steps since the last call, and resets the sums.

    Omits `WALL_CLOCK` if no step was timed.
    """
    sums = self.sums
    weight = sums['weight']
    tokens = max(weight, 1.0)
    steps = max(sums['steps'], 1.0)
    # If every step was skipped, there is no loss.
    values = {
      'train/loss': sums.get('loss', math.nan) / tokens,
      'train/perplexity': perplexity(sums.get('nll', math.nan) / tokens),
      'train/gradient_norm': sums.get('gradient_norm', math.nan) / steps,
      'train/learning_rate': learning_rate,
      'train/fill': weight / (steps * self._positions),
    }
    for name, total in sums.items():
      if name not in (*REQUIRED_SUMS, *RESERVED_METRICS):
        values[f'train/{name}'] = total / tokens
    if seconds := self._timed['seconds']:
      source_speed = self._timed['source_tokens'] / seconds
      target_speed = self._timed['target_tokens'] / seconds
      values['train/data_wait'] = self._timed['waited'] / seconds
      values['tokens_per_second'] = target_speed
      if self._utilization_per_token_rate is not None:
        of_source, of_target = self._utilization_per_token_rate
        values['flops_utilization'] = (
          of_source * source_speed + of_target * target_speed
        )
    self.sums = Counter()
    self._timed = Counter()
    return values


def perplexity(loss: float) -> float:
  """Returns exp of a loss in nats per token, or infinity on overflow."""
  return math.exp(loss) if not loss >= 700 else math.inf


def utilization_per_token_rate(
  model: Model, devices: int, objective: Objective
) -> tuple[float, float] | None:
  """Returns the fractions of peak FLOP/s that one source and one target token per second use.

  Returns None if the peak of the devices, or the FLOPs of the model, are unknown.
  """
  peak = peak_flops(jax.devices()[0].device_kind)
  by_token = train_flops_per_token(model, objective.passes, objective.extra_models)
  if peak is None or by_token is None:
    return None
  of_source, of_target = by_token
  return of_source / (peak * devices), of_target / (peak * devices)
