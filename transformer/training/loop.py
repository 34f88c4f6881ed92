"""Training from the first step, or the last checkpoint, to the end."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from transformer.data.batch import Batch
from transformer.errors import Preempted, UserError
from transformer.model.transformer import Transformer
from transformer.training import processes
from transformer.training.checkpoints import Checkpoints
from transformer.training.config import MeshConfig, OptimizerConfig, TrainConfig
from transformer.training.mesh import batch_sharding, make_mesh
from transformer.training.meter import Meter, perplexity, utilisation
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.patience import best_evaluation, is_out_of_patience
from transformer.training.preemption import Signals
from transformer.training.programs import Programs, compile_programs, first_state, state_like
from transformer.training.reporting import TENSORBOARD, NoReporter, Reporter, Sample
from transformer.training.run_directory import CHECKPOINTS, INTERRUPTED
from transformer.training.signal_checkpoint import SignalCheckpoint
from transformer.training.step import TrainState, init_params, layers_of
from transformer.training.tracing import Tracer
from transformer.training.watch import Watch, divergence


class Settings(Protocol):
  """The groups of a config that training reads."""

  optimizer: OptimizerConfig
  train: TrainConfig
  mesh: MeshConfig
  seed: int


class NumberedBatches(Protocol):
  """Training batches that can be had from any step on."""

  def iterate(self, start: int, stop: int) -> Iterator[Batch]:
    """Yields batches `start` … `stop − 1`."""


class Outcome(NamedTuple):
  """How training ended.

  Attributes:
    step: updates made.
    resumed_from: step of the checkpoint that it went on from, or None.
    best_step: the step of the best evaluation, or None.
    best_bleu: its BLEU, or None.
    out_of_patience: whether it stopped before `train.steps`.
  """

  step: int
  resumed_from: int | None
  best_step: int | None
  best_bleu: float | None
  out_of_patience: bool


def train(settings: Settings, model: Transformer, batches: NumberedBatches,
          valid_batches: Sequence[Batch], score: Callable[[Any], float],
          workdir: str | os.PathLike, initial_params: Callable[[], Any] | None = None,
          profile: tuple[int, int] | None = None,
          decode: Callable[[Sequence[int]], str] | None = None,
          programs: Programs | None = None, signals: Signals | None = None,
          samples: Callable[[], Sequence[Sample]] | None = None,
          pictures: Callable[[], Mapping[str, np.ndarray]] | None = None) -> Outcome:
  """Trains until `train.steps`, or until patience runs out, from where `workdir` left off.

  Args:
    settings: the config's groups that training reads.
    model: what to train.
    batches: the batch of every step.
    valid_batches: the validation split, packed.
    score: gives the validation BLEU of parameters.
    workdir: the run's directory; checkpoints, metrics and TensorBoard go there.
    initial_params: gives what a run without a checkpoint starts from; None draws
      it from the seed.
    profile: the first and the last step to trace, into the folder for TensorBoard.
    decode: gives the text of token ids, for a batch that is written down; None
      writes the ids alone.
    programs: the update and the evaluation, if they are compiled already.
    signals: what may ask to stop; None never does.
    samples: gives a few of the sentences that `score` translated last, which
      TensorBoard shows; None shows none.
    pictures: gives what else `score` has to show, uint8 [height, width] by name.

  Returns:
    How it ended.

  Raises:
    UserError: the mesh fits neither the devices nor the batch, the loss is no
      longer a number, for more updates in a row than may be skipped, or a checkpoint
      cannot be written.
    Preempted: a signal asked to stop; the last step is saved.
  """
  signals = signals or Signals()
  config = settings.train
  rows, length = valid_batches[0].target_tokens.shape
  mesh = make_mesh(settings.mesh, rows // settings.optimizer.accumulate)
  schedule = make_schedule(settings.optimizer, model.config.model_dim, config.steps)
  optimizer = make_optimizer(settings.optimizer, schedule)
  like = state_like(settings, model, mesh) if programs is None else programs.state
  checkpoints = Checkpoints(Path(workdir) / CHECKPOINTS, keep=config.keep)
  interrupted = SignalCheckpoint(Path(workdir) / INTERRUPTED)
  state, history, resumed_from = _start(settings, model, optimizer, checkpoints, interrupted, like,
                                        initial_params)
  start = int(state.step)
  out_of_patience = is_out_of_patience(history['evaluations'], config.patience)
  stop = start if out_of_patience else config.steps

  def due(step, every):
    return step == config.steps or step % every == 0

  # A signal may have come before, or during, the evaluation of the step that it saved.
  owed = interrupted.step == start and due(start, config.eval_every) and all(
      each['step'] != start for each in history['evaluations'])
  if programs is None and (owed or start < stop):
    programs = compile_programs(settings, model, like, mesh,
                                (rows, valid_batches[0].source_tokens.shape[1], length))

  log, writes = history.pop('log', {}), processes.is_first()
  reporter = Reporter(workdir, start, config.steps, log) if writes else NoReporter()
  tracer = Tracer(Path(workdir) / TENSORBOARD, profile if writes else None, reporter.say)
  meter = Meter(history['meter'], rows * length,
                utilisation(model, mesh.size, passes=2 if config.r_drop else 1))
  watch = Watch(history.get('window', {}), config.skip_nonfinite, workdir, reporter.say, decode,
                writes)
  layers = layers_of(state.params)
  wishes, by_rows = processes.Wishes(mesh), batch_sharding(mesh)
  valid_batches = [processes.place(each, by_rows) for each in valid_batches]
  reporter.say(f'step {start} of {config.steps}: {mesh.size} '
               f'{jax.devices()[0].device_kind} device(s), '
               f'{sum(leaf.size for leaf in jax.tree.leaves(state.params)):,} parameters, '
               f'{rows} rows of {length} target positions a batch')

  def shown(loss, tokens_per_second):
    """What people watch of the updates."""
    speed = {} if tokens_per_second is None else {'tokens/s': f'{tokens_per_second:,.0f}'}
    return {'loss': f'{loss:.3f}', **speed}

  def settle(step, batch, metrics):
    """Takes in the metrics of a step, once the device has been given the next one."""
    metrics = jax.device_get(metrics)
    made = watch.is_finite(step, batch, metrics)
    skips = metrics.pop('skips', None)
    meter.add({**metrics, 'spikes': made and watch.is_spike(step, metrics)}, skipped=not made)
    if step % config.log_every == 0 or step == config.steps:
      # The schedule counts the updates that were made.
      before = step - made - (int(skips.total) if skips else 0)
      speed = meter.tokens_per_second
      values = meter.take(float(schedule(before)))
      if skips:
        values |= {'train/skipped': int(skips.total), 'train/skipped_in_a_row': int(skips.in_a_row)}
      reporter.write(step, values, shown(values['train/loss'], speed))
      of_layers = zip(*meter.take_layers(), strict=True)  # None where every step was skipped.
      reporter.write_histograms(step, {f'gradient_norm/{layer}': norms for layer, norms in
                                       zip(layers, of_layers, strict=False)})
    reporter.advance(step, shown(metrics['loss'] / max(metrics['weight'], 1.0),
                                 meter.tokens_per_second))

  def to_keep():
    """What is saved beside the state."""
    return {**history, 'meter': meter.sums, 'window': watch.window, 'log': reporter.written()}

  try:
    signals.hold()
    pending = None
    ahead = batches.iterate(start, stop) if start < stop else ()
    steps = enumerate(meter.watch(ahead), start + 1)
    for step, batch in itertools.chain([(start, None)] if owed else [], steps):
      if batch is not None:
        state, metrics = tracer.run(step, programs.train_step, state,
                                    processes.place(batch, by_rows))
        if pending:
          settle(*pending)
        pending = (step, batch, metrics)
      evaluate, save = due(step, config.eval_every), due(step, config.checkpoint_every)
      stopping = wishes.heard(bool(signals.requested))
      if not wishes.alone:
        try:
          checkpoints.check()
        except UserError as error:
          processes.fail(error)
      if not (evaluate or save or stopping):
        continue
      if pending:
        settle(*pending)
      pending = None
      improved = False
      if evaluate:
        if stopping and not wishes.alone:  # None of several can leave it halfway; it is owed.
          _stop(step, state, to_keep(), checkpoints, interrupted, signals)
        try:
          call = signals.interruptible if wishes.alone else _call
          values = call(_evaluate, programs.eval_step, score, state.best_params, valid_batches)
        except Preempted:
          _stop(step, state, to_keep(), checkpoints, interrupted, signals)
        history['evaluations'].append({'step': step, **values})
        best = best_evaluation(history['evaluations'])
        improved = best is history['evaluations'][-1]
        out_of_patience = is_out_of_patience(history['evaluations'], config.patience)
        bleu = f'{values["valid/bleu"]:.2f}'
        reporter.write(step, values, {'BLEU': bleu}, f'valid loss {values["valid/loss"]:.3f}  '
                       f'valid BLEU {bleu}' + '  the best so far' * improved)
        if doubt := divergence(state, values):
          reporter.warn(f'step {step}: {doubt}')
        if samples is not None:
          reporter.write_samples(step, samples())
        if pictures is not None:
          reporter.write_pictures(step, pictures())
        if out_of_patience:
          reporter.say(f'out of patience at step {step}: none of the last {config.patience} '
                       f'evaluations (train.patience) was better than that of step '
                       f'{best["step"]}, with validation BLEU {best["valid/bleu"]:.2f} and loss '
                       f'{best["valid/loss"]:.3f}')
      save = save or improved or out_of_patience
      if save:
        checkpoints.save(state, to_keep())
        if interrupted.step is not None:
          checkpoints.wait()
          interrupted.remove()
      if out_of_patience or step == config.steps:
        break
      if stopping or (wishes.alone and signals.requested):
        _stop(step, state, to_keep(), checkpoints, None if save else interrupted, signals)
      meter.restart_clock()
  finally:
    try:
      checkpoints.close()
    finally:
      tracer.close()
      reporter.close()
  best = best_evaluation(history['evaluations'])
  return Outcome(int(state.step), resumed_from, best and best['step'], best and best['valid/bleu'],
                 out_of_patience)


def _stop(step, state, history, checkpoints, interrupted, signals):
  """Saves where the run is, unless that is saved already, and ends it."""
  checkpoints.wait()  # It may be the best, and would not be made again from a later step.
  if interrupted is not None and interrupted.step != step:
    interrupted.save(state, history)
  who = signals.requested or 'another process'
  raise Preempted(f'stopped by {who} after step {step}, which is saved; the same command goes on '
                  f'from there')


def _start(settings, model, optimizer, checkpoints, interrupted, like, initial_params):
  """The state to go on from, its history, and the step of its checkpoint if it has one."""
  def new_state(params) -> TrainState:
    return first_state(settings, optimizer, params)

  sharding = jax.tree.map(lambda leaf: leaf.sharding, like)
  stopped_at, whole = interrupted.step, interrupted.is_whole()
  if whole and stopped_at > max(checkpoints.steps(), default=-1):
    return *interrupted.restore(like), stopped_at
  step = checkpoints.fall_back()
  if stopped_at is not None and (step is None or stopped_at > step):
    if whole:
      return *interrupted.restore(like), stopped_at
    interrupted.set_aside(step)
  interrupted.remove()
  if step is not None:
    state, history = checkpoints.restore(step, like)
    checkpoints.prune(history)
    return state, history, step
  if initial_params is None:
    state = jax.jit(lambda: new_state(init_params(model, settings.seed)),
                    out_shardings=sharding)()
  else:
    state = jax.jit(new_state, out_shardings=sharding)(jax.device_get(initial_params()))
  return state, {'evaluations': [], 'meter': {}}, None


def _call(function, *arguments):
  return function(*arguments)


def _evaluate(eval_step, score, params, valid_batches: Iterable[Batch]) -> dict[str, float]:
  """Loss and perplexity a real token, without smoothing, and BLEU."""
  totals = [eval_step(params, batch) for batch in valid_batches]
  sums = {name: sum(float(each[name]) for each in totals) for name in ('nll', 'weight')}
  loss = sums['nll'] / max(sums['weight'], 1.0)
  return {'valid/loss': loss, 'valid/perplexity': perplexity(loss), 'valid/bleu': score(params)}
