"""What a run trains with, up to what is compiled: `train.py` makes it, and `--check` with it."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from absl import logging
from jax.sharding import Mesh

from transformer import own_code
from transformer.config import Config
from transformer.data.corpora import EncodedCorpora, encode_corpora
from transformer.experiment.open_run import OpenRun, facts_of
from transformer.experiment.text import RunText, open_text
from transformer.experiment.validation import Metric, check_metrics, validation_metrics
from transformer.model.transformer import Transformer
from transformer.system import processes
from transformer.training.config import MeshConfig
from transformer.training.freezing import describe_frozen
from transformer.training.mesh import make_mesh
from transformer.training.objective import make_objective
from transformer.training.update import Update, make_update


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
