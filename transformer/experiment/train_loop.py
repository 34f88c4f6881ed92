"""Training: from a config, or from the last checkpoint, to the end of a run."""

import functools
import shlex
from pathlib import Path
from typing import Any

import jax
from absl import logging

from transformer.config import Config
from transformer.data.batches.training_batches import BatchesByStep
from transformer.decoding.config import resolve_decode_options
from transformer.decoding.translator import Translator
from transformer.errors import StoppedBySignal, UserError, short_repr
from transformer.experiment.open_run import RunState, open_run
from transformer.experiment.preparation import PreparedRun, prepare_run, record_start
from transformer.experiment.run_logger import RunLogger
from transformer.experiment.validation import Evaluation, Validation, ValidationSet
from transformer.ops.fused_attention import missing_for_fused_attention
from transformer.runs.checkpoint_writer import CheckpointWriter
from transformer.runs.evaluations import (
  BEST_BY,
  Evaluations,
  best_evaluation,
  is_out_of_patience,
  selection_metric,
)
from transformer.system import processes
from transformer.system.bfloat16 import advise_bfloat16
from transformer.system.installation import rewrite_commands
from transformer.system.jax_backend import check_backend
from transformer.system.signals import Signals
from transformer.training.config import TrainConfig
from transformer.training.memory_check import compile_within_memory
from transformer.training.mesh import check_even_sharding, make_mesh
from transformer.training.step import TrainState
from transformer.training.training_setup import CompiledSteps


def train_run(config: Config, workdir: Path, signals: Signals | None = None):
  """Trains a run from its config, or resumes it; raises `StoppedBySignal` if `signals` stop it."""
  check_backend()
  processes.broadcast_from_first(lambda: _check_machine(config))
  mesh = make_mesh(config.mesh, config.rows_per_microbatch)
  with open_run(workdir, config) as (run, checkpoints):
    if run.is_finished:
      _log_end(config.train, workdir, run.step, run.history['evaluations'])
      return
    prepared = prepare_run(config, run, mesh)
    batches = prepared.data.batches
    validation = _validation(config, prepared)
    setup = prepared.setup
    name, search = _compile_search(validation, setup.abstract_state.eval_params)
    compiled = compile_within_memory(setup, batches.shape, name, search)
    processes.broadcast_from_first(lambda: record_start(run, prepared))
    if not run.begun:
      processes.broadcast_from_first(lambda: advise_bfloat16(config.model))
    if run.step is None:
      state = setup.first_state(prepared.origin and prepared.origin.params)
    else:
      state = checkpoints.restore(run.step, setup.abstract_state)
    step, evaluations = train(
      run, checkpoints, compiled, state, batches, validation, signals
    )
    _log_end(config.train, workdir, step, evaluations)


def train(
  run: RunState,
  checkpoints: CheckpointWriter,
  compiled: CompiledSteps,
  state: TrainState,
  batches: BatchesByStep,
  validation: Validation,
  signals: Signals | None = None,
) -> tuple[int, Evaluations]:
  """Runs the training loop of an unfinished run; returns its last step and its evaluations.

  `state` is the first state, or the restored one. Raises `StoppedBySignal` if `signals` stop it.
  """
  signals = signals or Signals()
  setup = compiled.setup
  config = setup.config.train
  evaluations = run.history['evaluations']
  step = int(state.step)
  done = run.training_done
  eval_pending = run.eval_pending
  agreement = processes.StopAgreement(setup.mesh)
  evaluate = validation.evaluate
  is_alone = jax.process_count() == 1  # Several processes can only save together.
  if is_alone:
    evaluate = functools.partial(signals.interruptible, evaluate)
  with RunLogger(run.workdir, setup, step, run.history, batches.shape) as logger:
    signals.defer()
    arriving = logger.meter.measure_wait(batches.iterate(step, config.steps))
    while eval_pending or not done:
      if not eval_pending:
        batch = next(arriving)
        placed = setup.shard_batch(batch)
        state, metrics = compiled.train_step(state, placed, *setup.objective.arguments)
        step += 1
        logger.log_step(step, batch, metrics)
        done = step >= config.steps
      eval_pending = False
      checkpoints.check_for_errors()
      if agreement.should_stop(bool(signals.requested)):
        checkpoints.save(state, logger.history(evaluations), eval_pending=True)
        raise StoppedBySignal(
          f'stopped by {signals.requested or "another process"} after step {step} (saved); '
          'rerun the command to resume'
        )
      saving = done or step % config.checkpoint_every == 0
      evaluating = done or step % config.eval_every == 0
      if evaluating and step not in [evaluation['step'] for evaluation in evaluations]:
        logger.log_pending_step()
        try:
          evaluation = evaluate(compiled.eval_step, state.eval_params)
          evaluations = [*evaluations, _history_entry(step, evaluation, config.best_by)]
        except (Exception, StoppedBySignal):
          if is_alone:
            checkpoints.save(state, logger.history(evaluations), eval_pending=True)
          raise
        logger.log_evaluation(step, evaluation, evaluations)
        done = done or is_out_of_patience(evaluations, config.patience)
        saving = saving or done or best_evaluation(evaluations) is evaluations[-1]
        logger.meter.restart_clock()
      if saving:
        checkpoints.save(state, logger.history(evaluations))
        logger.meter.restart_clock()
    checkpoints.wait()
  return step, evaluations


def _validation(config: Config, prepared: PreparedRun) -> Validation:
  """Returns what evaluates a run: its validation sets, and greedy search that translates them.

  Greedy search is fast; `eval.py` uses the beam size of `config.decode`.
  """
  setup = prepared.setup
  greedy = resolve_decode_options(config.decode, config.seed, beam_size=1)
  length = config.data.max_length
  translate = Translator((setup.model,), prepared.vocabulary, length, setup.mesh)
  sets = []
  for key, corpus in prepared.corpora.valid.items():
    batches = [setup.shard_batch(batch) for batch in prepared.data.valid_batches[key]]
    sources, targets = zip(*corpus[:], strict=True)
    sets.append(ValidationSet(key, batches, sources, targets, corpus.gold or targets))
  has_chrf = config.train.best_by.rpartition('/')[2] == 'chrf'
  return Validation(sets, translate, greedy, prepared.metric, has_chrf)


def _compile_search(validation: Validation, params) -> tuple[str, Any]:
  """Returns a readable name, and the compiled search of the longest validation sentences."""
  sources = []
  for split in validation.sets:
    sources += split.sources
  greedy = validation.decoding
  length, search = validation.translate.compile_longest([params], sources, greedy)
  return f'search of {greedy.batch_size} sentences of {length} tokens', search


def _history_entry(step: int, evaluation: Evaluation, best_by: str) -> dict:
  """Returns an evaluation's entry in the history; raises `UserError` if it lacks `best_by`."""
  values = evaluation.values
  if best_by and f'valid/{best_by}' not in values:
    names = ', '.join(name.removeprefix('valid/') for name in values)
    raise UserError(
      f'train.best_by must be one of {names}; got {short_repr(best_by)}; once train.valid_metric '
      'returns it, rerun the command to resume'
    )
  return {'step': step, **values, **({BEST_BY: best_by} if best_by else {})}


def _check_machine(config: Config):
  """Raises `UserError` if this machine lacks the devices that a config needs."""
  if config.model.attention == 'cudnn' and (
    missing := missing_for_fused_attention(config.model.head_key_dim)
  ):
    raise UserError(
      f'model.attention=cudnn needs {missing}; with such a GPU, install JAX for that platform '
      '(see the README); elsewhere, set --config.model.attention=reference'
    )
  check_even_sharding(
    config.mesh,
    config.rows_per_microbatch,
    config.decode.batch_size,
    jax.device_count(),
    jax.process_count(),
  )


def _log_end(config: TrainConfig, workdir: Path, step: int, evaluations: Evaluations):
  """Logs the best step of a finished run, and the command that scores it."""
  logging.info('the run is done: step %d of %d', step, config.steps)
  if step < config.steps:
    logging.info('out of patience: train.patience=%d', config.patience)
  if best := best_evaluation(evaluations):
    name, score = selection_metric(best)
    logging.info(
      'the best step on the validation split is %d, with %s %.2f',
      best['step'],
      name,
      score,
    )
  command = rewrite_commands('score it with: python eval.py --workdir=')
  logging.info('%s%s', command, shlex.quote(str(workdir)))
