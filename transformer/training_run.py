"""A run in training: its text, vocabulary, model and directory, wired to the loop."""

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import logging

from transformer import files
from transformer.config import Config, flatten
from transformer.data.audit_table import in_brief
from transformer.data.corpora import encode_corpora, open_corpora
from transformer.data.text_report import look_over
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.inference.attention_maps import Attender, picture
from transformer.inference.metrics import corpus_bleu
from transformer.inference.translate import Translator
from transformer.known_faults import check_backend
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.run import Run, load_run
from transformer.training import processes, run_directory
from transformer.training.checkpoints import Checkpoints
from transformer.training.curves import draw_for_run
from transformer.training.lock import RunLock
from transformer.training.loop import train
from transformer.training.mesh import make_mesh, row_devices, sentence_sharding
from transformer.training.patience import is_out_of_patience
from transformer.training.preemption import Signals
from transformer.training.preflight import preflight
from transformer.training.reporting import Sample
from transformer.training.step import init_params

_LOOKED_OVER = 200_000  # training pairs, which take ten seconds
# Settings of a model that do not change what its parameters mean.
_FREE_SETTINGS = ('dropout', 'attention', 'dtype', 'remat')
_SHOWN = 5  # sentences of the validation split that TensorBoard shows, evenly spread


def train_run(config: Config, workdir: Path, profile: tuple[int, int] | None = None,
              signals: Signals | None = None):
  """Trains what `config` says, in a directory that holds nothing, or a run of this config.

  Args:
    config: the run's settings.
    workdir: the run's directory.
    profile: the first and the last step to trace, or None.
    signals: what may ask to stop; None never does.

  Raises:
    UserError: the config does not fit the devices, the text or what `workdir` holds,
      another run is in there, or the installed JAX computes wrong numbers.
    Preempted: a signal asked to stop.
  """
  # What depends on the devices is refused before anything is read or written.
  check_backend()
  processes.from_first(lambda: _mesh(config) and None)
  # One lock a job, whatever its number of processes.
  with contextlib.ExitStack() as stack:
    processes.from_first(lambda: stack.enter_context(RunLock(workdir)) and None)
    _train(config, workdir, profile, signals, _mesh(config))


def _mesh(config: Config) -> jax.sharding.Mesh:
  """The devices that a config asks for, where they are as it needs them."""
  if config.model.attention == 'cudnn' and jax.default_backend() != 'gpu':
    raise UserError(f'model.attention=cudnn needs an NVIDIA GPU; JAX runs on '
                    f'{jax.default_backend()} here; set --config.model.attention=reference')
  rows = config.train.tokens_per_batch // config.data.max_length
  mesh = make_mesh(config.mesh, rows // config.optimizer.accumulate)
  ways = row_devices(mesh)
  if config.decode.batch_size % ways and jax.process_count() > 1:
    raise UserError(f'mesh.data × mesh.fsdp = {ways} must divide decode.batch_size, since several '
                    f'processes share the search; got {config.decode.batch_size}')
  return mesh


def _train(config: Config, workdir: Path, profile, signals, mesh):
  """Does what `train_run` says, in a directory that no other run is in."""
  if run_directory.has_begun(workdir):
    run_directory.check_goes_on(workdir)
  corpora = open_corpora(config.data)
  # Read only where the vocabulary, or the first parameters, are still to come from it.
  origin = (functools.cache(lambda: load_run(config.train.init_from)) if config.train.init_from
            else None)
  vocabulary = _vocabulary(workdir, config, corpora, origin)

  def encode(tokens_per_batch: int):
    return encode_corpora(config.data, corpora, vocabulary, tokens_per_batch, config.seed)

  encoded = encode(config.train.tokens_per_batch)
  fingerprints = {'vocabulary': vocabulary.fingerprint, **corpora.fingerprints()}
  model = Transformer(config.model, vocabulary.size)
  sources, references = (list(side) for side in zip(*corpora.valid[:], strict=True))
  # Greedy, because it is to be quick; `eval.py` searches as `config.decode` says.
  greedy = dataclasses.replace(config.decode, beam_size=1, sample=False)
  translate = Translator(model, vocabulary, greedy, config.data.max_length,
                         rows=sentence_sharding(mesh, greedy.batch_size))

  def compile_search(params):
    length, program = translate.compile_longest(params, sources)
    return f'search, {greedy.batch_size} sentences of {length} tokens', program

  programs = None
  done, begun = _is_done(workdir, config), (workdir / run_directory.CONFIG).exists()
  done, begun = processes.from_first(lambda: [done, begun])
  if not done:
    programs, tokens = preflight(config, model, encoded.batches.shape, compile_search,
                                 begun)
    if tokens != config.train.tokens_per_batch:
      config = dataclasses.replace(config, train=dataclasses.replace(config.train,
                                                                     tokens_per_batch=tokens))
      encoded = encode(tokens)

  def begin():
    if not run_directory.has_begun(workdir):
      _look_over(workdir, config, corpora, vocabulary)
    _describe(workdir, config, model, vocabulary, fingerprints, encoded.counts, origin)

  processes.from_first(begin)

  def initial_params():
    identity = _identity(origin())
    # The first has just written what it is held against, which others may not see yet.
    processes.from_first(lambda: run_directory.check_same_origin(workdir, identity))
    return origin().params

  shown: list[Sample] = []
  look = None
  if jax.process_count() == 1:  # Several would have to look together.
    look = Attender(model, vocabulary, config.data.max_length, config.data.max_length)
  pictures: dict[str, np.ndarray] = {}

  def score(params) -> float:
    translations = [each.text for each in translate(params, sources)]
    some = range(0, len(sources), -(-len(sources) // _SHOWN))
    shown[:] = (Sample(sources[each], references[each], translations[each]) for each in some)
    if look is not None:
      seen, = look(params, sources[:1], references[:1])  # The same at every evaluation.
      pictures.update((f'valid/attention_{kind}', picture(weights))
                      for kind, weights in seen.weights._asdict().items())
    return corpus_bleu(translations, [references], config.decode.bleu_tokenize).score

  outcome = train(config, model, encoded.batches, encoded.valid_batches, score, workdir,
                  origin and initial_params, profile, vocabulary.decode, programs, signals,
                  lambda: shown, lambda: pictures)
  finished_before = outcome.resumed_from == outcome.step
  if processes.is_first() and not (finished_before and (workdir / run_directory.CURVES).exists()):
    draw_for_run(workdir, logging.warning)
  if finished_before:
    logging.info('the run is done: step %d of %d%s', outcome.step, config.train.steps,
                 ', out of patience' if outcome.out_of_patience else '')
  if outcome.best_step is not None:
    logging.info('the best step on the validation split is %d, with BLEU %.2f', outcome.best_step,
                 outcome.best_bleu)
  logging.info('score it with: python eval.py --workdir=%s', workdir)


def _look_over(workdir: Path, config: Config, corpora, vocabulary: Vocabulary):
  """Tells in brief what is odd about the text, unless there is so much that it would take long."""
  pairs = sum(map(len, corpora.train.values()))
  if pairs > _LOOKED_OVER:
    logging.info('%s training pairs are too many to be looked over at every beginning; python -m '
                 'transformer.data.audit, with the same --config flags, does that', f'{pairs:,}')
    return
  report = look_over(config.data, vocabulary, origin='this run')
  for line in in_brief(report):
    logging.info('%s', line)
  files.write_json(workdir / run_directory.AUDIT, report)


def _is_done(workdir: Path, config: Config) -> bool:
  """Whether a run has come to its end, so that nothing need be compiled for it."""
  folder = workdir / run_directory.CHECKPOINTS
  if not folder.is_dir():
    return False
  with contextlib.closing(Checkpoints(folder, read_only=True)) as checkpoints:
    last = max(checkpoints.steps(), default=None)
    if last is None:
      return False
    try:
      evaluations = checkpoints.history(last)['evaluations']
    except UserError:
      return False  # It is damaged, and the run goes on from one before.
  return last >= config.train.steps or is_out_of_patience(evaluations, config.train.patience)


def _vocabulary(workdir: Path, config: Config, corpora,
                origin: Callable[[], Run] | None) -> Vocabulary:
  """The run's own vocabulary, or that of the run to start from, or a new one."""
  path = workdir / run_directory.VOCABULARY
  # Before the run has begun nothing tells whether it is whole, and it is soon made again.
  if processes.from_first(lambda: run_directory.has_begun(workdir) and path.exists()):
    return Vocabulary.load(path, run_directory.read_fingerprints(workdir)['vocabulary'])
  if origin is None:
    pairs = sum(map(len, corpora.train.values()))
    logging.info('training a vocabulary of %d pieces on %d of %d pairs',
                 config.data.vocabulary_size, min(pairs, config.data.vocabulary_pairs), pairs)
    return Vocabulary.from_bytes(bytes.fromhex(processes.from_first(
        lambda: Vocabulary.train(corpora.training_text(config.data.vocabulary_pairs),
                                 config.data.vocabulary_size).model_bytes.hex())))
  origin = origin()
  if origin.vocabulary.size != config.data.vocabulary_size:
    raise UserError(f'a run takes its vocabulary from train.init_from; set '
                    f'--config.data.vocabulary_size={origin.vocabulary.size}; '
                    f'got {config.data.vocabulary_size}')
  _check_same_model(origin.config.model, config.model)
  return origin.vocabulary


def _check_same_model(origin: ModelConfig, model: ModelConfig):
  """Refuses a model in which the parameters of `train.init_from` would mean something else.

  Raises:
    UserError: names the settings that differ.
  """
  def meaning(config: ModelConfig) -> dict[str, Any]:
    settings = dataclasses.asdict(config) | {'key_dim': config.head_key_dim,
                                             'value_dim': config.head_value_dim}
    if config.positions != 'learned':
      settings.pop('max_positions')
    return {name: value for name, value in settings.items() if name not in _FREE_SETTINGS}

  there, here = meaning(origin), meaning(model)
  different = [f'model.{name} is {there.get(name)} there, and {here.get(name)} here'
               for name in there | here if there.get(name) != here.get(name)]
  if different:
    raise UserError(f'a run starts from train.init_from with the same model, but for '
                    f'{", ".join(_FREE_SETTINGS)}: {"; ".join(different)}; set what is there, or '
                    f'start from another run')


def _describe(workdir: Path, config: Config, model: Transformer, vocabulary: Vocabulary,
              fingerprints, counts, origin: Callable[[], Run] | None):
  """Writes what makes the directory a run; on resuming, checks that the data is the same."""
  # Once more, since the directory may have become another run's before the lock was taken.
  old = run_directory.read_config(workdir)
  changes = {} if old is None else run_directory.check_same_run(
      workdir, flatten(Config.from_dict(old).to_dict()), flatten(config.to_dict()))
  resumed = run_directory.has_begun(workdir)
  if resumed:
    run_directory.check_same_data(workdir, fingerprints)
    # Before the config, lest a change be made and not be noted.
    run_directory.add_session(workdir, config.train.reproducible, changes)
  files.write_sealed(workdir / run_directory.CONFIG, config.to_dict())
  if not (resumed and (workdir / run_directory.VOCABULARY).exists()):
    vocabulary.save(workdir / run_directory.VOCABULARY)
  if not resumed:
    shapes = jax.eval_shape(lambda: init_params(model, 0))
    parameters = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    files.write_sealed(workdir / run_directory.RUN,
                       run_directory.describe(fingerprints, counts, parameters,
                                              config.train.reproducible,
                                              origin and _identity(origin())))


def _identity(run: Run) -> dict[str, Any]:
  """What tells the parameters that a run starts from from others."""
  digest = hashlib.sha256()
  for leaf in jax.tree.leaves(jax.device_get(run.params)):
    digest.update(leaf.tobytes())
  return {'steps': run.steps, 'sha256': digest.hexdigest()}
