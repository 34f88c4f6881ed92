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
from transformer.model.transformer import Transformer
from transformer.runs import resuming, run_directory
from transformer.runs.loading import Run
from transformer.system import processes
from transformer.training.config import MeshConfig
from transformer.training.freezing import describe_frozen
from transformer.training.mesh import make_mesh
from transformer.training.objective import Objective, make_objective
from transformer.training.update import Update, make_update


class RunText(NamedTuple):
  """What a run reads; `origin` is the run of `train.init_from`, or None if it is not needed."""

  corpora: Corpora
  vocabulary: RunVocabulary
  origin: Run | None


class Preparation(NamedTuple):
  """What a run trains with; a run that has ended has no batches and no update.

  `facts` are what `run.json` says of it, `metrics` those of evaluations.
  """

  text: RunText
  facts: Mapping[str, Any]
  metrics: Sequence[Metric]
  encoded: EncodedCorpora | None = None
  update: Update | None = None


def prepare(config: Config, run: OpenRun, mesh: Mesh, keep: bool = True) -> Preparation:
  """Opens, encodes and builds what a run trains with, and compiles nothing.

  `keep` stores encoded text on disk. Raises `UserError` if the run cannot begin or go on.
  """
  def load_reporters():
    for spec in config.train.report:
      own_code.load(spec, 'reporter')

  processes.from_first(load_reporters)
  metrics = validation_metrics(config)
  # A mistake in an objective ends a run before its text is read or encoded.
  objective_of = None if run.ended else make_objective(config)
  text = open_text(config, run)
  if run.ended:
    return Preparation(text, processes.from_first(lambda: facts_of(run, config, text)), metrics)
  corpora, vocabulary, _ = text
  check_metrics(metrics, config, next(iter(corpora.valid.values())), run.begun)
  objective = objective_of(vocabulary)
  encoded = encode_corpora(config.data, corpora, vocabulary, config.train.tokens_per_batch,
                           config.seed, keep)
  model = Transformer(config.model, vocabulary.target.size, vocabulary.source.size)
  update = make_update(config, model, mesh, objective)
  if config.train.freeze:
    logging.info(describe_frozen(config.train.freeze, update.state.params))
  facts = processes.from_first(lambda: facts_of(run, config, text, objective))
  return Preparation(text, facts, metrics, encoded, update)


def open_text(config: Config, run: OpenRun) -> RunText:
  """Opens the text of an `OpenRun`, and its own vocabulary or a new one."""
  corpora = open_corpora(config.data)
  processes.check_same(files.as_json(corpora.fingerprints()), 'text')
  origin = None
  if config.train.init_from and (run.step is None or 'train.init_from' in run.changes):
    origin = load_to_host(config.train.init_from)
    check_same_model(origin.config.model, config.model)

  def make():
    made = making.make_vocabulary(config.data, corpora, origin and origin.vocabulary)
    return {name: model.hex() for name, model in vocabularies.model_files(made).items()}

  if run.begun:
    vocabulary = vocabularies.load(run.workdir, run_directory.read_fingerprints(run.workdir))
    renamed = [key for key in config.data.sizes if f'data.{key}' in run.changes]
    processes.from_first(lambda: making.check_same(vocabulary, config.data, renamed))
  else:
    models = processes.from_first(make)
    vocabulary = vocabularies.from_model_files(
        {name: bytes.fromhex(model) for name, model in models.items()}, 'the first process')
  return RunText(corpora, vocabulary, origin)


def facts_of(run: OpenRun, config: Config, text: RunText, objective: Objective | None = None
             ) -> dict[str, Any]:
  """Returns what `run.json` says of the text, the parameters and the parts of one's own of a run.

  Refuses other data, first parameters or frozen arrays than the run began with. A run that has
  ended has no objective.
  """
  vocabulary = text.vocabulary
  data = {**vocabularies.fingerprints(vocabulary), **text.corpora.fingerprints()}
  origin = text.origin and describe_origin(text.origin, vocabulary)
  frozen = objective and list(objective.sources)
  if run.begun:
    resuming.check_same_start(run.workdir, data, origin, frozen)
  return {'data': data, 'origin': origin, 'frozen': frozen,
          'own_code': own_code.digests(config.own_code)}


def check_run(config: Config, workdir: Path):
  """Does what a start does before it compiles, on one CPU device; writes nothing.

  The devices of a start are not looked at, nor whether another process trains in the directory.
  """
  jax.config.update('jax_platforms', 'cpu')
  if config.model.attention != 'reference':  # Its arrays have the same shapes.
    config = dataclasses.replace(
        config, model=dataclasses.replace(config.model, attention='reference'))
  mesh = make_mesh(MeshConfig(data=1), config.rows_at_once, jax.devices()[:1])
  prepared = prepare(config, OpenRun(workdir, config, None), mesh, keep=False)
  if prepared.update:
    prepared.update.lower(prepared.encoded.batches.shape)  # An objective may fail where it is used.
