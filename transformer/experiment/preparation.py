"""Builds everything that a run trains with, before compilation; for `train.py` and `--check`."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

import jax
from jax.sharding import Mesh

from transformer import files, plugins
from transformer.config import Config
from transformer.data.batches.training_batches import BatchShape
from transformer.data.corpora import (
  Corpora,
  RunBatches,
  make_run_batches,
  open_corpora,
)
from transformer.data.vocabulary import building, vocabularies
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.errors import UserError
from transformer.evaluation.metrics import check_tokenizer
from transformer.evaluation.scores import CustomMetric, load_metric
from transformer.experiment.init_from import (
  check_same_model,
  load_to_host,
  weights_provenance,
)
from transformer.experiment.open_run import RunState, read_run_state
from transformer.experiment.validation import check_metrics
from transformer.model.building import build_model
from transformer.model.flops import train_flops_per_token
from transformer.runs import record, resuming, run_directory
from transformer.runs.checkpoints import Checkpoints
from transformer.runs.loading import Run
from transformer.system import processes
from transformer.system.bfloat16 import advise_bfloat16
from transformer.training.config import MeshConfig
from transformer.training.mesh import make_mesh
from transformer.training.objective import make_objective
from transformer.training.training_setup import TrainingSetup, make_training_setup

_PAIRS = 5  # Number of pairs on which a custom metric is tried.


class PreparedRun(NamedTuple):
  """The data, the vocabulary and the training step of a run, before compilation.

  Attributes:
    origin: the run of `train.init_from`; None if it is not needed.
    metric: `train.valid_metric`, or None.
    facts: entries of `run.json` about the data, the initial parameters and the plugins.
  """

  corpora: Corpora
  vocabulary: RunVocabulary
  origin: Run | None
  metric: CustomMetric | None
  data: RunBatches
  setup: TrainingSetup
  facts: Mapping


def prepare_run(
  config: Config, run: RunState, mesh: Mesh, write_cache: bool = True
) -> PreparedRun:
  """Opens and encodes the data, and builds the model and the training step; compiles nothing.

  `write_cache`: whether to store encoded text on disk. Raises `UserError` if the run cannot begin
  or resume, for example because its data, initial parameters or frozen arrays have changed.
  """
  train = config.train
  # Import the plugins first, so that their errors come before any text is read.
  for spec, kind in config.plugin_kinds.items():
    plugins.load(spec, kind)
  check_tokenizer(config.decode.bleu_tokenize)
  metric = load_metric(train.valid_metric) if train.valid_metric else None
  corpora = open_corpora(config.data)
  processes.check_same_text(files.json_bytes(corpora.fingerprints()))
  first = next(iter(corpora.valid.values()))
  gold = first.gold and first.gold[:_PAIRS]
  check_metrics(metric, train.best_by, first[:_PAIRS], gold)
  origin = None
  if train.init_from and (run.step is None or 'train.init_from' in run.changes):
    origin = load_to_host(train.init_from)
    check_same_model(origin.config.model, config.model)
  vocabulary = _vocabulary(config, run, corpora, origin)
  vocabulary_digests = vocabularies.fingerprints(vocabulary)
  if origin and vocabularies.fingerprints(origin.vocabulary) != vocabulary_digests:
    raise UserError(
      'the vocabulary comes from train.init_from; remove data.vocabulary and new '
      'data.user_defined_symbols, or first transfer the weights to a different vocabulary, as '
      'docs/vocabulary.md shows'
    )
  objective = make_objective(config, vocabulary)
  encoded = make_run_batches(
    config.data, corpora, vocabulary, train.tokens_per_batch, config.seed, write_cache
  )
  setup = make_training_setup(
    config, build_model(config.model, vocabulary), mesh, objective
  )
  facts = {
    'data': {**vocabulary_digests, **corpora.fingerprints()},
    'origin': origin and weights_provenance(origin),
    'frozen': list(objective.provenance),
    'plugins': plugins.digests(config.plugin_kinds),
  }
  if run.begun:
    processes.broadcast_from_first(
      lambda: resuming.check_same_start(run.workdir, facts)
    )
  return PreparedRun(corpora, vocabulary, origin, metric, encoded, setup, facts)


def _vocabulary(
  config: Config, run: RunState, corpora: Corpora, origin: Run | None
) -> RunVocabulary:
  """Returns the vocabulary of an existing run; for a new run, builds it in process 0."""
  if run.begun:
    return vocabularies.load(
      run.workdir, run_directory.read_record(run.workdir)['data']
    )

  def make():
    vocabulary = building.build_vocabulary(
      config.data, corpora, origin and origin.vocabulary
    )
    return {
      name: model.hex() for name, model in vocabularies.model_files(vocabulary).items()
    }

  models = processes.broadcast_from_first(make)
  return vocabularies.from_model_files(
    {name: bytes.fromhex(model) for name, model in models.items()}, 'the first process'
  )


def record_start(run: RunState, prepared: PreparedRun):
  """Writes the settings and the vocabulary, and writes or extends `run.json`."""
  setup = prepared.setup
  config = setup.config
  reproducible = config.train.reproducible
  if run.begun:
    # Written before the config, so that every changed setting is recorded.
    digests = prepared.facts['plugins']
    record.add_session(
      run.workdir, reproducible, run.changes, not run.training_done, digests
    )
  files.write_sealed(run.workdir / run_directory.CONFIG, config.to_dict())
  vocabularies.save(prepared.vocabulary, run.workdir)
  if run.begun:
    return
  record.write_record(
    run.workdir,
    reproducible,
    parameters=setup.num_parameters,
    counts=prepared.data.counts,
    flops_per_step=_flops(setup, prepared.data.batches.shape),
    **prepared.facts,
  )


def _flops(setup: TrainingSetup, shape: BatchShape) -> float | None:
  """Returns the FLOPs of a training step, including padded positions; None if unknown."""
  rows, source_length, target_length = shape
  objective = setup.objective
  by_token = train_flops_per_token(
    setup.model, objective.passes, objective.extra_models, source_length, target_length
  )
  if by_token is None:
    return None
  of_source, of_target = by_token
  return rows * (of_source * source_length + of_target * target_length)


def check_run(config: Config, workdir: Path) -> PreparedRun | None:
  """Does everything that training does before compilation, on one CPU device; writes nothing.

  Does not check the devices of the real run, nor whether another process trains in the directory.
  Returns None if the run is finished, so that there is nothing to train.
  """
  jax.config.update('jax_platforms', 'cpu')
  run = read_run_state(
    workdir, config, Checkpoints(workdir / run_directory.CHECKPOINTS)
  )
  if run.is_finished:
    return None
  mesh = make_mesh(MeshConfig(data=1), config.rows_per_microbatch, jax.devices()[:1])
  prepared = prepare_run(config, run, mesh, write_cache=False)
  # Trace the step, since a custom objective may fail only when it is called.
  prepared.setup.lower(prepared.data.batches.shape)
  # On a machine with a plugin for an accelerator, training does not use the CPU.
  if not run.begun and not entry_points(group='jax_plugins'):
    advise_bfloat16(config.model)
  return prepared
