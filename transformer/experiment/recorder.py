"""Records the metrics of a run's updates, with skips and spikes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from transformer.data.batch import Batch
from transformer.experiment.divergence import DivergenceGuard
from transformer.experiment.meter import Meter
from transformer.experiment.reporting import NoReporter, Reporter


class Recorder:
  """Sums the metrics of the updates, and reports them every `log_every` updates.

  Fetches the metrics of an update one step late, so that the device already works on the
  next update.
  """

  def __init__(self, meter: Meter, guard: DivergenceGuard, reporter: Reporter | NoReporter,
               schedule: Callable[[int], float], layers: Sequence[str]):
    """Starts with no pending update.

    Args:
      meter: sums the metrics.
      guard: checks the metrics for numbers that are not finite, and for spikes.
      reporter: writes the sums.
      schedule: number of updates -> learning rate.
      layers: the names of the layers, in the order of their gradients' norms.
    """
    self._meter, self._guard, self._reporter = meter, guard, reporter
    self._schedule, self._layers = schedule, layers
    self._pending: tuple[int, Batch, Any, bool] | None = None

  def add(self, step: int, batch: Batch, metrics: Any, log: bool):
    """Records the update before, and makes this one pending.

    Args:
      step: the number of this update.
      batch: its batch.
      metrics: its metrics, perhaps not computed yet.
      log: whether to write a line of metrics after this update.

    Raises:
      UserError: the update before is not finite, and must not be skipped.
    """
    self.settle()
    self._pending = step, batch, metrics, log

  def settle(self):
    """Records the pending update, if there is one.

    Raises:
      UserError: that update is not finite, and must not be skipped.
    """
    if self._pending is None:
      return
    step, batch, metrics, log = self._pending
    self._pending = None
    metrics = jax.device_get(metrics)
    made = self._guard.check_update(step, batch, metrics)
    skips = metrics.pop('skips', None)
    spikes = made and self._guard.is_spike(step, metrics)
    self._meter.add({**metrics, 'spikes': spikes}, skipped=not made)
    if log:
      # The schedule does not count skipped updates.
      self._write(step, skips, updates_before=step - made - (int(skips.total) if skips else 0))
    self._reporter.advance(step, _shown(metrics['loss'] / max(metrics['weight'], 1.0),
                                        self._meter.tokens_per_second))

  def _write(self, step: int, skips: Any, updates_before: int):
    """Writes the line of metrics that ends with a step, and the layers' histograms."""
    speed = self._meter.tokens_per_second
    values = self._meter.take(float(self._schedule(updates_before)))
    if skips:
      values |= {'train/skipped': int(skips.total), 'train/skipped_in_a_row': int(skips.in_a_row)}
    self._reporter.write(step, values, _shown(values['train/loss'], speed))
    of_layers = zip(*self._meter.take_layers(), strict=True)  # Empty if all steps were skipped.
    self._reporter.write_histograms(step, {
        f'gradient_norm/{layer}': norms
        for layer, norms in zip(self._layers, of_layers, strict=False)})


def _shown(loss: float, tokens_per_second: float | None) -> Mapping[str, str]:
  """Returns the figures for people, as text by name."""
  speed = {} if tokens_per_second is None else {'tokens/s': f'{tokens_per_second:,.0f}'}
  return {'loss': f'{loss:.3f}', **speed}
