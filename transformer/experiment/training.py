"""Training: from a config, or from where the run was, to the last checkpoint."""

import contextlib
import functools
import itertools
import math
import operator
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import logging

from transformer.config import Config
from transformer.data.batches.training_batches import BatchesByStep
from transformer.decoding.config import decoding_for
from transformer.decoding.translator import Translator
from transformer.errors import Preempted, UserError, optional, shown
from transformer.experiment.init_from import params_from
from transformer.experiment.open_run import OpenRun, open_run, record_start
from transformer.experiment.preparation import prepare
from transformer.experiment.report import Report
from transformer.experiment.tensorboard import TENSORBOARD
from transformer.experiment.tracing import Tracer
from transformer.experiment.validation import (
  Evaluation,
  ValidationSet,
  evaluate,
)
from transformer.ops.attention import missing_for_fused_attention
from transformer.runs.evaluations import (
  BEST_BY,
  best_evaluation,
  deciding_metric,
  is_out_of_patience,
)
from transformer.runs.record import record_cost
from transformer.system import processes
from transformer.system.installation import spell_commands
from transformer.system.jax_backend import check_backend
from transformer.system.machine import visible_gpus
from transformer.system.signals import Signals
from transformer.training.config import TrainConfig
from transformer.training.memory_check import compile_within_memory
from transformer.training.mesh import check_shares, make_mesh
from transformer.training.update import Update


def train_run(
  config: Config,
  workdir: Path,
  profile: tuple[int, int] | None = None,
  signals: Signals | None = None,
):
  """Trains a run from its config, or resumes it.

  `profile` is the first and the last step to trace. `signals` stop the run, by `Preempted`.
  """
  check_backend()
  processes.from_first(lambda: _check_machine(config))
  mesh = make_mesh(config.mesh, config.rows_at_once)
  with open_run(workdir, config) as run:
    corpora, vocabulary, origin, metrics, facts, encoded, update = prepare(config, run, mesh)
    if run.ended:
      processes.from_first(lambda: record_start(run, config, vocabulary, facts))
      _report_end(run, config, run.step, run.history['evaluations'])
      return
    # Greedy search is quick; `eval.py` uses the beams of `config.decode`.
    greedy = decoding_for(config.decode, config.seed, beam_size=1)
    translate = Translator((update.model,), vocabulary, config.data.max_length, mesh)
    length, search = translate.compile_longest(
      [update.state.best_params],
      [source for corpus in corpora.valid.values() for source, _ in corpus[:]],
      greedy,
    )
    update = compile_within_memory(
      update,
      encoded.batches.shape,
      (f'search, {greedy.batch_size} sentences of {length} tokens', search),
      run.begun,
    )
    if update.config != config:
      config = update.config
      encoded = encoded.resized(config.train.tokens_per_batch)
    processes.from_first(lambda: record_start(run, config, vocabulary, facts, update, encoded))

    sets = [
      ValidationSet(
        key, list(map(update.place, encoded.valid_batches[key])), corpus[:], corpus.gold
      )
      for key, corpus in corpora.valid.items()
    ]
    step, evaluations = train(
      run,
      update,
      encoded.batches,
      functools.partial(
        evaluate,
        sets=sets,
        translate=translate,
        decoding=greedy,
        metrics=metrics,
      ),
      origin and params_from(origin, vocabulary),
      profile=profile,
      signals=signals,
    )
    _report_end(run, config, step, evaluations)


def train(
  run: OpenRun,
  update: Update,
  batches: BatchesByStep,
  validate: Callable[[Callable, Any], Evaluation],
  params: Any = None,
  *,
  profile: tuple[int, int] | None = None,
  signals: Signals | None = None,
) -> tuple[int, list[Mapping[str, Any]]]:
  """Trains a run that has not ended by a compiled update; returns its steps and evaluations.

  `validate` is (`eval_step`, parameters) -> their evaluation. Without `params`, the first ones are
  drawn from the seed. `profile` and `signals` are as for `train_run`.
  """
  settings, signals, alone = update.config.train, signals or Signals(), jax.process_count() == 1
  state = run.restore(update, params)
  evaluations = run.history['evaluations']
  step = int(state.step)
  done = run.done
  agreement = processes.StopAgreement(update.mesh)
  tracer = Tracer(run.workdir / TENSORBOARD, profile if processes.is_first() else None)
  report = Report(run.workdir, update, step, run.history, batches.shape)
  with contextlib.closing(tracer), report:

    def save(unfinished: bool = True):
      run.save(state, {'evaluations': evaluations, **report.history()}, unfinished)

    signals.hold()
    updates = () if done else report.meter.watch(batches.iterate(step, settings.steps))
    try:
      for batch in itertools.chain([None] if run.unfinished else [], updates):
        if batch is not None:
          state, metrics = tracer.run(step + 1, update, state, batch)
          step += 1
          report.add(step, batch, metrics)
          done = step >= settings.steps
        evaluating = (done or step % settings.eval_every == 0) and all(
          evaluation['step'] != step for evaluation in evaluations
        )
        saving = done or step % settings.checkpoint_every == 0
        stopping = agreement.should_stop(bool(signals.requested))
        run.check_writes()
        if not (evaluating or saving or stopping):
          continue
        report.settle()
        if evaluating:
          if stopping and not alone:  # Several processes cannot interrupt an evaluation.
            raise Preempted
          try:
            evaluation = (signals.interruptible if alone else operator.call)(
              validate, update.eval_step, state.best_params
            )
          except Exception:
            if alone:  # Several processes can only save together.
              save()
            raise
          evaluations = [*evaluations, _judged(step, evaluation.values, settings, save)]
          report.add_evaluation(step, evaluation, evaluations)
          done = done or is_out_of_patience(evaluations, settings.patience)
          saving = saving or done or best_evaluation(evaluations) is evaluations[-1]
        if saving:
          save(unfinished=False)
        if done:
          break
        if stopping:
          raise Preempted
        report.meter.restart_clock()
    except Preempted as interruption:
      save()
      raise Preempted(
        f'stopped by {signals.requested or "another process"} after step {step}, '
        f'which is saved; the same command goes on from there'
      ) from interruption
    run.wait()
  return step, evaluations


def _judged(
  step: int, values: Mapping[str, float], settings: TrainConfig, save: Callable[[], None]
) -> dict[str, Any]:
  """Returns what the history says of an evaluation; if that lacks `best_by`, ends the run."""
  metric = settings.best_by
  if metric and f'valid/{metric}' not in values:
    save()  # All processes have the same values, and so save together.
    known = ', '.join(name.removeprefix('valid/') for name in values)
    raise UserError(
      f'train.best_by must be one of {known}; got {shown(metric)}; step {step} is '
      f'saved: once train.valid_metric={settings.valid_metric} gives it, the same '
      f'command goes on'
    )
  return {'step': step, **values, **({BEST_BY: metric} if metric else {})}


def _check_machine(config: Config):
  """Refuses a config whose devices are not here; warns of GPUs that JAX lacks."""
  if jax.default_backend() == 'cpu' and (gpus := visible_gpus(os.environ)):
    logging.warning(
      'this machine has %d NVIDIA GPUs, and JAX runs on the CPU: install the JAX for '
      'them as the README says, or set JAX_PLATFORMS=cpu',
      len(gpus),
    )
  if config.model.attention == 'cudnn' and (
    missing := missing_for_fused_attention(config.model.head_key_dim)
  ):
    raise UserError(
      f'model.attention=cudnn needs {missing}; where there is such a GPU, install '
      f'its JAX as the README says, elsewhere set --config.model.attention=reference'
    )
  check_shares(
    config.mesh,
    config.rows_at_once,
    config.decode.batch_size,
    jax.device_count(),
    jax.process_count(),
  )


def _report_end(run: OpenRun, config: Config, step: int, evaluations: Sequence[Mapping[str, Any]]):
  """Logs the cost and the best step of a run that has ended, and the next command."""
  if processes.is_first():
    with optional('the cost of the run is not recorded', logging.warning):
      record_cost(run.workdir, step)
  if run.ended:
    logging.info('the run is done: step %d of %d', step, config.train.steps)
  best = best_evaluation(evaluations)
  if best and math.isfinite(deciding_metric(best)[1]):
    logging.info(
      'the best step on the validation split is %d, with %s %.2f',
      best['step'],
      *deciding_metric(best),
    )
  logging.info(
    spell_commands('score it with: python eval.py --workdir=%s'), shlex.quote(str(run.workdir))
  )
