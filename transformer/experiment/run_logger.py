"""Logs a run: progress bar or log lines, `metrics.jsonl`, TensorBoard and trackers."""

import contextlib
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from absl import logging
from tqdm import tqdm

from transformer import files, plugins
from transformer.config import Config
from transformer.data.batch import Batch
from transformer.data.batches.training_batches import BatchShape
from transformer.errors import warn_on_error
from transformer.experiment.divergence import check_finite_step
from transformer.experiment.meter import Meter, utilization_per_token_rate
from transformer.experiment.tensorboard import TENSORBOARD, TensorBoard
from transformer.experiment.trackers import Trackers
from transformer.experiment.validation import Evaluation
from transformer.runs.evaluations import (
  Evaluations,
  best_evaluation,
  selection_metric,
)
from transformer.runs.metrics_file import MetricsFile
from transformer.runs.run_directory import METRICS, RESULTS
from transformer.system import processes
from transformer.system.progress import log_info, log_warning, progress_bar
from transformer.training.training_setup import TrainingSetup


class RunLogger:
  """Logs the metrics of training steps, which `meter` accumulates, and evaluations.

  Fetches the metrics of a step one step late, while the device is already working on the next one.
  Raises `UserError` if a loss or gradient is not finite and the step cannot be skipped. Only
  process 0 writes. Of all write failures, only one to `metrics.jsonl` ends the run.
  """

  def __init__(
    self,
    workdir: Path,
    setup: TrainingSetup,
    step: int,
    history: Mapping,
    shape: BatchShape,
  ):
    """Opens the files and starts the trackers; `shape` is the shape of each batch."""
    rows, _, length = shape
    config = setup.config.train
    self._workdir = workdir
    self._config = config
    self._schedule = setup.schedule
    self.meter = Meter(
      history.get('meter', {}),
      rows * length,
      utilization_per_token_rate(setup.model, setup.mesh.size, setup.objective),
    )
    self._first = processes.is_first()
    processes.broadcast_from_first(
      lambda: self._open(setup.config, step, history.get('log', {}))
    )
    self._shown = {}
    self._began = (step, time.monotonic())
    self._pending: tuple[int, Batch, Any] | None = None
    log_info(
      f'step {step} of {config.steps}: {setup.mesh.size} {jax.devices()[0].device_kind} '
      f'device(s), {setup.num_parameters:,} parameters, {rows} rows of {length} target positions '
      'per batch'
    )

  def _open(self, config: Config, step: int, position: Mapping):
    tracker_classes = {str(self._workdir / TENSORBOARD): TensorBoard}
    for spec in config.train.trackers:
      tracker_classes[f'the tracker {spec}'] = plugins.load(spec, 'tracker')
    seconds = min(10.0, config.train.grace_seconds / 4)
    with contextlib.ExitStack() as opened:
      self._metrics = MetricsFile(self._workdir / METRICS, position)
      opened.callback(self._metrics.close)
      self._trackers = Trackers(tracker_classes, (config, self._workdir, step), seconds)
      opened.pop_all()
    self._bar = progress_bar(config.train.steps, step, stays=True)

  def log_step(self, step: int, batch: Batch, metrics):
    """Logs the pending step, if any, and makes this step pending."""
    self.log_pending_step()
    self._pending = (step, batch, metrics)

  def log_pending_step(self):
    """Records the pending step, if any; raises `UserError` if it diverged and was not skipped."""
    if self._pending is None:
      return
    step, batch, metrics = self._pending
    self._pending = None
    metrics = jax.device_get(metrics)
    allowed = self._config.max_consecutive_nonfinite
    updated = check_finite_step(self._workdir, allowed, step, batch, metrics)
    skips = metrics.pop('skips', None)
    self.meter.add(metrics, skipped=not updated)
    if self._first:
      self._bar.update(step - self._bar.n)
    if step % self._config.log_every == 0 or step >= self._config.steps:
      # The schedule does not count skipped steps.
      self._write_updates(
        step, skips, step - updated - (int(skips.total) if skips else 0)
      )

  def _write_updates(self, step: int, skips, updates_before: int):
    """Writes the line of metrics that ends with a step."""
    values = self.meter.flush(float(self._schedule(updates_before)))
    if skips:
      values |= {
        'train/skipped': int(skips.total),
        'train/skipped_in_a_row': int(skips.in_a_row),
      }
    if not self._first:
      return
    shown = {'loss': f'{values["train/loss"]:.3f}'}
    if 'tokens_per_second' in values:
      shown['tokens/s'] = f'{values["tokens_per_second"]:,.0f}'
    self._write(step, values, shown)
    if self._bar.disable:
      first, since = self._began
      eta = (time.monotonic() - since) / (step - first) * (self._config.steps - step)
      logging.info(
        'step %d/%d  %s  %s left',
        step,
        self._config.steps,
        '  '.join(f'{name} {text}' for name, text in shown.items()),
        tqdm.format_interval(eta),
      )

  def log_evaluation(self, step: int, evaluation: Evaluation, evaluations: Evaluations):
    """Logs the evaluation of a step, which is the last of `evaluations`."""
    if not self._first:
      return
    folder = self._workdir / RESULTS
    for key, texts in evaluation.translations.items():
      with warn_on_error(
        f'step {step}, {key}: no translations in {RESULTS}/', log_warning
      ):
        content = ''.join(f'{text}\n' for text in texts)
        files.write(folder / f'{key.replace("/", ".")}.{step}.txt', content.encode())
    name, score = selection_metric(evaluations[-1])
    self._write(step, evaluation.values, {name: f'{score:.2f}'})
    self._trackers.notify('log_samples', step, evaluation.samples)
    best = best_evaluation(evaluations)
    is_best = best is evaluations[-1] and math.isfinite(score)
    log_info(
      f'step {step}/{self._config.steps}  valid loss {evaluation.values["valid/loss"]:.3f} '
      f'(not smoothed)  valid {name} {score:.2f}{"  the best so far" if is_best else ""}'
    )

  def _write(self, step: int, values: Mapping[str, float], shown: Mapping[str, str]):
    """Writes numbers to `metrics.jsonl` and the trackers; shows some in the progress bar."""
    # JSON has neither NaN nor infinity.
    numbers = {
      name: value if math.isfinite(value) else None for name, value in values.items()
    }
    self._metrics.write(json.dumps({'step': step, **numbers}) + '\n')
    self._trackers.notify('log_metrics', step, values)
    self._shown |= shown
    self._bar.set_postfix(self._shown)

  def history(self, evaluations: Evaluations) -> dict:
    """Logs the pending step; returns the history that a checkpoint stores, as JSON data."""
    self.log_pending_step()
    return {
      'evaluations': evaluations,
      'meter': dict(self.meter.sums),
      'log': self._metrics.flush() if self._first else {},
    }

  def __enter__(self) -> 'RunLogger':
    return self

  def __exit__(self, kind, error: BaseException | None, trace):
    """Closes the files and the trackers; the bar stays visible."""
    if self._first:
      self._bar.close()
      self._metrics.close()
      self._trackers.close(error)
