"""Wires a training run: text, vocabulary, model, directory and the loop."""

import contextlib
import dataclasses
import functools
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
from absl import logging

from transformer import files
from transformer.config import Config
from transformer.data.corpora import encode_corpora, open_corpora
from transformer.data.vocabulary import making, vocabularies
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.decoding.attention_maps import Attender
from transformer.decoding.translator import Translator
from transformer.errors import UserError, optional
from transformer.evaluation.own_metrics import OwnMetric
from transformer.experiment.loop import train
from transformer.experiment.origin import (
  check_same_model,
  describe_origin,
  load_to_host,
  params_from,
)
from transformer.experiment.start_record import Start, record_start
from transformer.experiment.task import Outcome, Task
from transformer.experiment.validation import (
  ValidationSet,
  check_metrics,
  make_validation,
  validation_metrics,
)
from transformer.model.transformer import Transformer
from transformer.ops.attention import missing_for_fused_attention
from transformer.runs import resuming, run_directory
from transformer.runs.checkpoints import Checkpoints
from transformer.runs.evaluations import deciding_metric, is_out_of_patience
from transformer.runs.loading import Run
from transformer.runs.lock import RunLock
from transformer.runs.record import record_cost
from transformer.system import processes
from transformer.system.installation import spell_commands
from transformer.system.jax_backend import check_backend
from transformer.system.machine import visible_gpus
from transformer.system.signals import Signals
from transformer.training.compilation import make_setup
from transformer.training.freezing import describe_frozen
from transformer.training.memory_check import compile_within_memory
from transformer.training.mesh import check_shares, make_mesh, sentence_sharding
from transformer.training.objective import cross_entropy, make_objective, place


def train_run(config: Config, workdir: Path, profile: tuple[int, int] | None = None,
              signals: Signals | None = None):
  """Trains a run from its config, or resumes it.

  Args:
    config: the run's settings.
    workdir: the run's directory; empty, or holds this run.
    profile: the first and the last step to trace, or None.
    signals: the signals that stop the run; None ignores them.

  Raises:
    UserError: the config does not fit the devices, the text or the run in `workdir`;
      another process trains there; or the installed JAX computes wrong numbers.
    Preempted: a signal stopped the run.
  """
  # The devices are checked before anything is read or written.
  check_backend()
  processes.from_first(lambda: _check_devices(config))
  with contextlib.ExitStack() as stack:
    def lock():
      stack.enter_context(RunLock(workdir))
      resuming.adopt_interrupted(workdir)
    processes.from_first(lock)
    _train(config, workdir, profile, signals)


def _check_devices(config: Config):
  """Refuses a config that does not fit the devices here; warns of GPUs that JAX does not use."""
  if jax.default_backend() == 'cpu' and (gpus := visible_gpus(os.environ)):
    logging.warning('this machine has %d NVIDIA GPUs, and JAX runs on the CPU: install the JAX for '
                    'them as the README says, or set JAX_PLATFORMS=cpu', len(gpus))
  if config.model.attention == 'cudnn' and (
      missing := missing_for_fused_attention(config.model.head_key_dim)):
    raise UserError(f'model.attention=cudnn needs {missing}; where there is such a GPU, install '
                    f'its JAX as the README says, elsewhere set --config.model.attention=reference')
  check_shares(config.mesh, config.rows_at_once, config.decode.batch_size, jax.device_count(),
               jax.process_count())


def _train(config: Config, workdir: Path, profile, signals):
  """Does the work of `train_run` in a locked directory."""
  # A mistake in it ends the run before the data is read.
  metrics = validation_metrics(config)
  # All processes must read a checkpoint together, as Orbax demands. The first one decides.
  ended, begun = _has_ended(workdir, config), (workdir / run_directory.CONFIG).exists()
  ended, begun = processes.from_first(lambda: [ended, begun])
  # A run that has ended needs no objective, nor what it is made of.
  objective_of = None if ended else make_objective(config)
  corpora = open_corpora(config.data)
  processes.check_same(files.as_json(corpora.fingerprints()), 'text')
  if not ended:
    first, *_ = corpora.valid.values()
    check_metrics(metrics, config, first, begun)
  # Loaded only if the run still lacks its vocabulary or its first parameters.
  origin = (functools.cache(lambda: load_to_host(config.train.init_from))
            if config.train.init_from else None)
  vocabulary = _vocabulary(workdir, config, corpora, origin)
  objective = objective_of(vocabulary) if objective_of else cross_entropy(config)
  encoded = encode_corpora(config.data, corpora, vocabulary, config.train.tokens_per_batch,
                           config.seed)
  model = Transformer(config.model, vocabulary.target.size, vocabulary.source.size)
  mesh = make_mesh(config.mesh, config.rows_at_once)
  setup = make_setup(config, model, mesh, place(objective, mesh))
  if config.train.freeze:
    logging.info(describe_frozen(config.train.freeze, setup.state.params))
  # Greedy search is quick; `eval.py` uses the beams of `config.decode`.
  greedy = dataclasses.replace(config.decode, beam_size=1)
  translate = Translator(model, vocabulary, greedy, config.data.max_length,
                         devices=sentence_sharding(setup.mesh, greedy.batch_size))

  def compile_search(params):
    sources = [source for corpus in corpora.valid.values() for source, _ in corpus[:]]
    length, program = translate.compile_longest(params, sources)
    return f'search, {greedy.batch_size} sentences of {length} tokens', program

  programs = None
  if not ended:
    programs, tokens = compile_within_memory(config, model, setup, encoded.batches.shape,
                                             compile_search, begun)
    if tokens != config.train.tokens_per_batch:
      config = dataclasses.replace(config, train=dataclasses.replace(config.train,
                                                                     tokens_per_batch=tokens))
      encoded = encoded.resized(tokens)

  start = Start(corpora, vocabulary, encoded,
                sum(leaf.size for leaf in jax.tree.leaves(setup.state.params)), objective, origin,
                ended)
  processes.from_first(lambda: record_start(workdir, config, start))

  def initial_params():
    identity = describe_origin(origin(), vocabulary)
    # Only the first process surely sees the file that it has just written.
    processes.from_first(lambda: resuming.check_same_origin(workdir, identity))
    return params_from(origin(), vocabulary)

  task = Task(model, encoded.batches, _valid_sets(config, start, model, translate, metrics),
              initial_params if origin else None,
              (vocabulary.source.decode, vocabulary.target.decode))
  _report_outcome(workdir, config, train(config, task, setup, workdir, programs, profile, signals))


def _valid_sets(config: Config, start: Start, model: Transformer, translate: Translator,
                metrics: Sequence[OwnMetric]) -> list[ValidationSet]:
  """Returns the validation sets; the attention of the first one's first pair is drawn."""
  attend = None
  if jax.process_count() == 1:  # An `Attender` works in one process.
    attend = Attender(model, start.vocabulary, config.data.max_length, config.data.max_length)
  sets = []
  for key, corpus in start.corpora.valid.items():
    sources, references = (list(side) for side in zip(*corpus[:], strict=True))
    validate = make_validation(translate, sources, references, config.decode.bleu_tokenize,
                               None if sets else attend, corpus.gold, metrics)
    sets.append(ValidationSet(key, start.encoded.valid_batches[key], validate))
  return sets


def _report_outcome(workdir: Path, config: Config, outcome: Outcome):
  """Logs the cost and the best step of a run that has ended, and the next command."""
  if processes.is_first():
    with optional('the cost of the run is not recorded', logging.warning):
      record_cost(workdir, outcome.step)
  if not outcome.worked:
    logging.info('the run is done: step %d of %d%s', outcome.step, config.train.steps,
                 ', out of patience' if outcome.out_of_patience else '')
  if outcome.best_step is not None:
    logging.info('the best step on the validation split is %d, with %s %.2f', outcome.best_step,
                 *deciding_metric(outcome.best))
  logging.info(spell_commands('score it with: python eval.py --workdir=%s'),
               shlex.quote(str(workdir)))


def _has_ended(workdir: Path, config: Config) -> bool:
  """Returns whether the run has made its last step, so that it needs no compiled programs."""
  folder = workdir / run_directory.CHECKPOINTS
  if not folder.is_dir():
    return False
  with contextlib.closing(Checkpoints(folder, read_only=True)) as checkpoints:
    last = max(checkpoints.steps(), default=None)
    if last is None or checkpoints.is_unfinished(last):
      return False
    try:
      evaluations = checkpoints.history(last)['evaluations']
    except UserError:
      return False  # It is damaged, so the run goes on from the checkpoint before.
  return last >= config.train.steps or is_out_of_patience(evaluations, config.train.patience)


def _vocabulary(workdir: Path, config: Config, corpora,
                origin: Callable[[], Run] | None) -> RunVocabulary:
  """Returns the run's own vocabulary, or a new one that may keep that of `train.init_from`."""
  # Only a run that has begun has fingerprints to compare the files with.
  if processes.from_first(lambda: (run_directory.has_begun(workdir)
                                   and vocabularies.is_saved(workdir))):
    own = vocabularies.load(workdir, run_directory.read_fingerprints(workdir))
    changes = resuming.changed_settings(workdir, config)
    changed = [key for key in config.data.sizes if f'data.{key}' in changes]
    processes.from_first(lambda: making.check_same(own, config.data, changed))
    if 'train.init_from' in changes:
      origin()  # `record_start` compares it in the first process; Orbax must load it in all.
    return own
  earlier = None
  if origin is not None:
    check_same_model(origin().config.model, config.model)
    earlier = origin().vocabulary
  models = processes.from_first(lambda: {
      name: model.hex() for name, model in vocabularies.model_files(
          making.make_vocabulary(config.data, corpora, earlier)).items()})
  return vocabularies.from_model_files(
      {name: bytes.fromhex(model) for name, model in models.items()}, 'the first process')
