"""What a run's updates add up to between two lines of metrics."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax

from transformer.model.flops import peak_flops, train_flops
from transformer.model.transformer import Transformer

# What differs between two runs that are otherwise the same bit for bit: what a clock measures.
WALL_CLOCK = ('tokens_per_second', 'flops_utilisation', 'train/data_wait')


class Meter:
  """Sums of what steps report, since the last line of metrics.

  The sums are saved with a checkpoint, so that a resumed run's lines are those of
  an uninterrupted one. Speed, and the share of time that went into waiting for
  data, are measured afresh in each process, and without the step that compiles. The
  norms of each layer's gradient are not summed, and not saved.
  """

  def __init__(self, sums: dict[str, float], positions: int,
               utilisation: Callable[[float, float], float] | None = None):
    """Starts from saved sums.

    Args:
      sums: from an earlier `Meter`, or empty.
      positions: target positions in a batch.
      utilisation: the share of the devices' peak that so many source and target
        tokens a second take; None if the peak is not known.
    """
    self.sums = dict(sums)
    self._layers: list[Any] = []
    self._positions = positions
    self._utilisation = utilisation
    self._clock: float | None = None
    self._waiting = 0.0
    self._forget_times()

  def watch(self, batches: Iterable) -> Iterator:
    """Hands on batches, and measures how long each was waited for."""
    before = time.perf_counter()
    for batch in batches:
      self._waiting += time.perf_counter() - before
      yield batch
      before = time.perf_counter()

  def add(self, metrics: dict[str, Any], skipped: bool = False):
    """Adds one step's metrics; of one that was skipped only the time that it took."""
    now = time.perf_counter()
    if self._clock is not None:
      self._seconds += now - self._clock
      self._waited += self._waiting
      self._timed_source += float(metrics['source_tokens'])
      self._timed_target += float(metrics['weight'])
    self._clock = now
    self._waiting = 0.0
    if skipped:
      return
    for name, value in {**metrics, 'steps': 1}.items():
      if name == 'layer_gradient_norms':
        self._layers.append(value)
      else:
        self.sums[name] = self.sums.get(name, 0.0) + float(value)

  def restart_clock(self):
    """Leaves out the time since the last step, which went into something else."""
    self._clock = time.perf_counter()

  @property
  def tokens_per_second(self) -> float | None:
    """Target tokens a second since the last line of metrics; None if no step was timed."""
    return self._timed_target / self._seconds if self._seconds else None

  def take(self, learning_rate: float) -> dict[str, float]:
    """The metrics of the steps since the last call, and starts anew.

    Those that a clock measures are left out where no step was timed.
    """
    # Where every step was skipped there is no loss to tell of.
    sums = {**dict.fromkeys(('loss', 'nll', 'gradient_norm'), math.nan),
            **dict.fromkeys(('weight', 'steps', 'spikes'), 0.0), **self.sums}
    tokens, steps = max(sums['weight'], 1.0), max(sums['steps'], 1.0)
    values = {
        'train/loss': sums['loss'] / tokens,
        'train/perplexity': perplexity(sums['nll'] / tokens),
        'train/gradient_norm': sums['gradient_norm'] / steps,
        'train/learning_rate': learning_rate,
        'train/spikes': sums['spikes'],
        'train/fill': sums['weight'] / (steps * self._positions),
    }
    if self._seconds:
      values |= {'train/data_wait': self._waited / self._seconds,
                 'tokens_per_second': self.tokens_per_second}
      if self._utilisation is not None:
        values['flops_utilisation'] = self._utilisation(self._timed_source / self._seconds,
                                                        self.tokens_per_second)
    self.sums = {}
    self._forget_times()
    return values

  def take_layers(self) -> list[Any]:
    """The norms of the layers' gradients, an array for each step since the last call."""
    layers, self._layers = self._layers, []
    return layers

  def _forget_times(self):
    self._seconds = self._waited = self._timed_source = self._timed_target = 0.0


def perplexity(loss: float) -> float:
  """exp of a loss in nats a token, or infinity where it overflows."""
  return math.exp(loss) if not loss >= 700 else math.inf


def utilisation(model: Transformer, devices: int,
                passes: int) -> Callable[[float, float], float] | None:
  """The share of the devices' peak that source and target tokens a second take.

  Args:
    model: what is trained.
    devices: how many there are.
    passes: how often each token goes through the model in an update.

  Returns:
    A function of both speeds; None if the peak is not known.
  """
  peak = peak_flops(jax.devices()[0].device_kind)
  if peak is None:
    return None
  source, target = train_flops(model.config, model.vocabulary_size)
  return lambda source_speed, target_speed: (
      passes * (source * source_speed + target * target_speed) / (peak * devices))
