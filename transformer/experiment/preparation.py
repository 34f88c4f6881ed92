"""What a run trains with, up to what is compiled: `train.py` makes it, and `--check` with it."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from absl import logging
from jax.sharding import Mesh

from transformer import files, own_code
from transformer.config import Config
from transformer.data.corpora import Corpora, EncodedCorpora, encode_corpora, open_corpora
from transformer.data.vocabulary import making, vocabularies
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.experiment.init_from import check_same_model, describe_origin, load_to_host
from transformer.experiment.open_run import OpenRun
from transformer.experiment.validation import Metric, check_metrics, validation_metrics
from transformer.model.building import build_model
from transformer.runs import resuming, run_directory
from transformer.runs.loading import Run
from transformer.system import processes
from transformer.training.config import MeshConfig
from transformer.training.freezing import describe_frozen
from transformer.training.mesh import make_mesh
from transformer.training.objective import make_objective
from transformer.training.update import Update, make_update


class Preparation(NamedTuple):
  """What a run trains with.

  Attributes:
    origin: the run of `train.init_from`; None if it is not needed.
    metrics: of evaluations, beside BLEU.
    facts: what `run.json` says of the text, the first parameters and the plugins.
    encoded, update: None for a run that has ended.
  """

  corpora: Corpora
  vocabulary: RunVocabulary
  origin: Run | None
  metrics: Sequence[Metric]
  facts: Mapping[str, Any]
  encoded: EncodedCorpora | None
  update: Update | None


def prepare(config: Config, run: OpenRun, mesh: Mesh, keep: bool = True) -> Preparation:
  """Opens, encodes and builds what a run trains with, and compiles nothing.

  `keep` stores encoded text on disk. Raises `UserError` if the run cannot begin or resume, as with
  other data, first parameters or frozen arrays than it began with.
  """

  def load_reporters():
    for spec in config.train.report:
      own_code.load(spec, 'reporter')

  processes.from_first(load_reporters)
  metrics = validation_metrics(config)
  # A mistake in an objective ends a run before its text is read or encoded.
  objective_of = None if run.ended else make_objective(config)
  corpora = open_corpora(config.data)
  processes.check_same(files.as_json(corpora.fingerprints()), 'text')
  origin = None
  if config.train.init_from and (run.step is None or 'train.init_from' in run.changes):
    origin = load_to_host(config.train.init_from)
    check_same_model(origin.config.model, config.model)
  vocabulary = _vocabulary(config, run, corpora, origin)
  frozen = encoded = update = None
  if not run.ended:
    check_metrics(metrics, config, next(iter(corpora.valid.values())), run.begun)
    objective = objective_of(vocabulary)
    frozen = list(objective.sources)
    encoded = encode_corpora(
      config.data, corpora, vocabulary, config.train.tokens_per_batch, config.seed, keep
    )
    model = build_model(config.model, vocabulary)
    update = make_update(config, model, mesh, objective)
    if config.train.freeze:
      logging.info(describe_frozen(config.train.freeze, update.state.params))

  def make_facts():
    data = {**vocabularies.fingerprints(vocabulary), **corpora.fingerprints()}
    start = origin and describe_origin(origin, vocabulary)
    if run.begun:
      resuming.check_same_start(run.workdir, data, start, frozen)
    return {
      'data': data,
      'origin': start,
      'frozen': frozen,
      'own_code': own_code.digests(config.own_code),
    }

  return Preparation(
    corpora, vocabulary, origin, metrics, processes.from_first(make_facts), encoded, update
  )


def _vocabulary(
  config: Config, run: OpenRun, corpora: Corpora, origin: Run | None
) -> RunVocabulary:
  """Returns the vocabulary of a run that has begun, or makes one in the first process."""
  if run.begun:
    return vocabularies.load(run.workdir, run_directory.read_fingerprints(run.workdir))

  def make():
    made = making.make_vocabulary(config.data, corpora, origin and origin.vocabulary)
    return {name: model.hex() for name, model in vocabularies.model_files(made).items()}

  models = processes.from_first(make)
  return vocabularies.from_model_files(
    {name: bytes.fromhex(model) for name, model in models.items()}, 'the first process'
  )


def check_run(config: Config, workdir: Path):
  """Does what a start does before it compiles, on one CPU device; writes nothing.

  The devices of a start are not looked at, nor whether another process trains in the directory.
  """
  jax.config.update('jax_platforms', 'cpu')
  if config.model.attention == 'cudnn':  # Its arrays have the same shapes.
    config = dataclasses.replace(
      config, model=dataclasses.replace(config.model, attention='reference')
    )
  mesh = make_mesh(MeshConfig(data=1), config.rows_at_once, jax.devices()[:1])
  prepared = prepare(config, OpenRun(workdir, config, None), mesh, keep=False)
  if prepared.update:
    prepared.update.lower(prepared.encoded.batches.shape)  # An objective may fail where it is used.
