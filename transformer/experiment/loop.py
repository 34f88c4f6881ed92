"""The training loop: updates, evaluations and checkpoints, from the first step to the last."""

import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from transformer.errors import Preempted, UserError, optional
from transformer.experiment.divergence import DivergenceGuard, divergence
from transformer.experiment.meter import Meter, utilisation
from transformer.experiment.recorder import Recorder
from transformer.experiment.reporting import TENSORBOARD, NoReporter, Reporter
from transformer.experiment.starting_point import starting_point
from transformer.experiment.task import Outcome, Settings, Task
from transformer.experiment.tracing import Tracer
from transformer.experiment.validation import Validation, evaluate
from transformer.runs.checkpoints import Checkpoints
from transformer.runs.evaluations import (
  BEST_BY,
  best_evaluation,
  deciding_metric,
  is_out_of_patience,
  write_translations,
)
from transformer.runs.run_directory import CHECKPOINTS, EVALUATIONS
from transformer.system import processes
from transformer.system.signals import Signals
from transformer.training.compilation import Programs, Setup, compile_programs
from transformer.training.mesh import batch_sharding
from transformer.training.step import layers_of


def train(settings: Settings, task: Task, setup: Setup, workdir: str | os.PathLike,
          programs: Programs | None = None, profile: tuple[int, int] | None = None,
          signals: Signals | None = None) -> Outcome:
  """Trains until `train.steps`, or until patience runs out, from the last checkpoint if any.

  Args:
    settings: the groups of the config that training reads.
    task: the model and its data.
    setup: from `make_setup`.
    workdir: the run's directory, for checkpoints, metrics and TensorBoard.
    programs: the update and the evaluation; None compiles them if there is work for them.
    profile: the first and the last step to trace, or None.
    signals: the signals that stop the run; None ignores them.

  Raises:
    UserError: the loss is not finite for more updates in a row than may be skipped, or a
      checkpoint cannot be written.
    Preempted: a signal stopped the run; its last step is saved.
  """
  loop = _Loop(settings, task, setup, Path(workdir), signals or Signals())
  if programs is None and (loop.owes_end or not loop.is_done):
    batch = task.valid_sets[0].batches[0]
    programs = compile_programs(settings, task.model, setup,
                                (*batch.source_tokens.shape, batch.target_tokens.shape[1]))
  return loop.run(programs, profile)


class _Loop:
  """A run in training: its state, and the objects that save and report it.

  Attributes:
    step: the number of updates so far.
    owes_end: whether the restored step must still be evaluated or saved, since a signal came
      first, or the run ends there by settings that were changed.
  """

  def __init__(self, settings: Settings, task: Task, setup: Setup, workdir: Path,
               signals: Signals):
    self._settings, self._task, self._mesh = settings, task, setup.mesh
    self._workdir, self._signals, config = workdir, signals, settings.train
    self._frozen = setup.objective.arguments
    self._checkpoints = Checkpoints(workdir / CHECKPOINTS, keep=config.keep)
    self._state, self._history, self._resumed_from = starting_point(
        settings, task.model, setup, self._checkpoints, task.initial_params)
    self.step = int(self._state.step)
    self._out_of_patience = is_out_of_patience(self._history['evaluations'], config.patience)
    self.owes_end = self._checkpoints.is_unfinished(self.step) and (
        self.is_done or self._must_evaluate())
    rows, length = task.valid_sets[0].batches[0].target_tokens.shape
    log = self._history.pop('log', {})
    self._writes = processes.is_first()
    self._reporter = (Reporter(workdir, self.step, config.steps, log) if self._writes
                      else NoReporter())
    self._meter = Meter(self._history['meter'], rows * length, utilisation(
        task.model, self._mesh.size, setup.objective))
    self._guard = DivergenceGuard(
        self._history.get('window', {}), config.skip_nonfinite, workdir, self._reporter.say,
        task.decode, self._writes)
    self._recorder = Recorder(self._meter, self._guard, self._reporter, setup.schedule,
                              layers_of(self._state.params))
    self._agreement, self._by_rows = processes.StopAgreement(self._mesh), batch_sharding(self._mesh)
    self._valid_sets = [each._replace(batches=[processes.place(batch, self._by_rows)
                                               for batch in each.batches])
                        for each in task.valid_sets]
    self._reporter.say(
        f'step {self.step} of {config.steps}: {self._mesh.size} {jax.devices()[0].device_kind} '
        f'device(s), {sum(leaf.size for leaf in jax.tree.leaves(self._state.params)):,} '
        f'parameters, {rows} rows of {length} target positions a batch')

  @property
  def is_done(self) -> bool:
    """Whether there is no update left to make."""
    return self._out_of_patience or self.step >= self._settings.train.steps

  def run(self, programs: Programs | None, profile: tuple[int, int] | None) -> Outcome:
    """Trains to the last step; `programs` may be None if there is nothing left to do."""
    tracer = Tracer(self._workdir / TENSORBOARD, profile if self._writes else None,
                    self._reporter.say)
    try:
      self._signals.hold()
      if self.owes_end:
        self._finish_step(programs)
      if not self.is_done:
        batches = self._task.batches.iterate(self.step, self._settings.train.steps)
        for batch in self._meter.watch(batches):
          self._state, metrics = tracer.run(self.step + 1, programs.train_step, self._state,
                                            processes.place(batch, self._by_rows),
                                            *self._frozen)
          self.step += 1
          self._recorder.add(self.step, batch, metrics,
                             log=self._is_due(self._settings.train.log_every))
          self._finish_step(programs)
          if self.is_done:
            break
    finally:
      try:
        self._checkpoints.close()
      finally:
        tracer.close()
        self._reporter.close()
    best = best_evaluation(self._history['evaluations'])
    return Outcome(self.step, self._resumed_from, best and best['step'], best,
                   self._out_of_patience,
                   self.owes_end or self.step != self._resumed_from)

  def _finish_step(self, programs: Programs):
    """Evaluates, saves and stops after a step, if that is due."""
    config = self._settings.train
    evaluate_now, save = self._must_evaluate(), self._is_due(config.checkpoint_every)
    stopping = self._agreement.should_stop(bool(self._signals.requested))
    try:
      self._checkpoints.check()
    except UserError as error:
      if self._agreement.alone:
        raise
      processes.fail(error)
    if not (evaluate_now or save or stopping):
      return
    self._recorder.settle()
    if evaluate_now:
      if stopping and not self._agreement.alone:  # Several processes cannot interrupt it.
        self._stop()
      save = self._evaluate(programs) or save
    if save:
      self._checkpoints.save(self._state, self._extras())
    if not self.is_done and (stopping or (self._agreement.alone and self._signals.requested)):
      self._stop(saved=save)
    self._meter.restart_clock()

  def _evaluate(self, programs: Programs) -> bool:
    """Evaluates and reports; returns whether the parameters must be saved."""
    config, evaluations = self._settings.train, self._history['evaluations']
    try:
      call = self._signals.interruptible if self._agreement.alone else operator.call
      values, validations = call(evaluate, programs.eval_step, self._state.best_params,
                                 self._valid_sets)
    except Preempted:
      self._stop()
    except Exception:
      if self._agreement.alone:  # Several processes can only save together.
        self._save_unfinished()
      raise
    if self._writes:
      self._write_translations(validations)
    # A metric of one's own may give other scores elsewhere, and all processes must decide alike.
    values = processes.from_first(lambda: values)
    evaluations.append({'step': self.step, **values, **self._best_by(values)})
    best = best_evaluation(evaluations)
    improved = best is evaluations[-1]
    self._out_of_patience = is_out_of_patience(evaluations, config.patience)
    name, score = deciding_metric(evaluations[-1])
    self._reporter.write(self.step, values, {name: f'{score:.2f}'},
                         f'valid loss {values["valid/loss"]:.3f}  valid {name} {score:.2f}'
                         + '  the best so far' * improved)
    if doubt := divergence(self._state, values):
      self._reporter.warn(f'step {self.step}: {doubt}')
    shown = validations[self._valid_sets[0].key]
    if shown.samples:
      self._reporter.write_samples(self.step, shown.samples)
    if shown.pictures:
      self._reporter.write_pictures(self.step, shown.pictures)
    if self._out_of_patience:
      self._reporter.say(
          f'out of patience at step {self.step}: none of the last {config.patience} evaluations '
          f'(train.patience) was better than that of step {best["step"]}, with validation {name} '
          f'{deciding_metric(best)[1]:.2f} and loss {best["valid/loss"]:.3f}')
    return improved or self._out_of_patience

  def _write_translations(self, validations: Mapping[str, Validation]):
    """Writes the translations of the validation sets, and warns of metrics that failed."""
    for key, validation in validations.items():
      place = f'step {self.step}, {key}'
      for failure in validation.failures:
        self._reporter.warn(f'{place}: {failure}')
      with optional(f'{place}: no translations in {EVALUATIONS}/', self._reporter.warn):
        write_translations(self._workdir, key, self.step, validation.translations,
                           self._settings.train.keep)

  def _best_by(self, values: Mapping[str, float]) -> dict[str, str]:
    """Returns what the history says of `train.best_by`: nothing if the usual metric decides.

    Raises:
      UserError: the evaluation lacks that metric; the next start evaluates the step again.
    """
    metric = self._settings.train.best_by
    if metric and f'valid/{metric}' not in values:
      self._save_unfinished()
      known = ', '.join(name.removeprefix('valid/') for name in values)
      raise UserError(f'train.best_by must be one of {known}; got {metric!r}; step {self.step} is '
                      f'saved: once train.valid_metric={self._settings.train.valid_metric} gives '
                      f'it again, the same command evaluates this step and goes on')
    return {BEST_BY: metric} if metric else {}

  def _stop(self, saved: bool = False):
    """Saves the state, unless it is saved, and raises `Preempted`."""
    if saved:
      self._checkpoints.wait()
    else:
      self._save_unfinished()
    who = self._signals.requested or 'another process'
    raise Preempted(f'stopped by {who} after step {self.step}, which is saved; the same command '
                    f'goes on from there')

  def _save_unfinished(self):
    """Saves the state of a step that is not finished; the next start goes on there."""
    if not self._checkpoints.is_unfinished(self.step):
      self._checkpoints.save(self._state, self._extras(), unfinished=True)
    self._checkpoints.wait()

  def _extras(self) -> dict[str, Any]:
    """Returns the JSON data that a checkpoint holds in addition to the state."""
    return {**self._history, 'meter': self._meter.sums, 'window': self._guard.window,
            'log': self._reporter.written()}

  def _must_evaluate(self) -> bool:
    """Returns whether this step is to be evaluated, and has not been."""
    return self._is_due(self._settings.train.eval_every) and all(
        each['step'] != self.step for each in self._history['evaluations'])

  def _is_due(self, every: int) -> bool:
    return self.is_done or self.step % every == 0
