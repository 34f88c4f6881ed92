"""The text and the vocabulary that a run trains with."""

from pathlib import Path
from typing import NamedTuple

import jax

from transformer import files
from transformer.config import Config
from transformer.data.corpora import Corpora, open_corpora
from transformer.data.vocabulary import making, vocabularies
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.experiment.init_from import check_same_model, load_to_host
from transformer.runs import run_directory
from transformer.runs.loading import Run
from transformer.system import processes


class RunText(NamedTuple):
  """What a run reads; `origin` is the run of `train.init_from`, or None if it is not needed."""

  corpora: Corpora
  vocabulary: RunVocabulary
  origin: Run | None


def open_text(config: Config, workdir: Path, begun: bool, changed: set[str],
              first: bool) -> RunText:
  """Opens the text of a run, and its own vocabulary or a new one.

  Args:
    begun: whether the run has begun.
    changed: the settings that have changed since, by dotted name.
    first: whether it still needs its first parameters.
  """
  corpora = open_corpora(config.data)
  processes.check_same(files.as_json(corpora.fingerprints()), 'text')
  origin = None
  if config.train.init_from and (first or not begun or 'train.init_from' in changed):
    origin = load_to_host(config.train.init_from)
    check_same_model(origin.config.model, config.model)

  def make():
    return making.make_vocabulary(config.data, corpora, origin and origin.vocabulary)

  if begun:
    vocabulary = vocabularies.load(workdir, run_directory.read_fingerprints(workdir))
    renamed = [key for key in config.data.sizes if f'data.{key}' in changed]
    processes.from_first(lambda: making.check_same(vocabulary, config.data, renamed))
  elif jax.process_count() == 1:
    vocabulary = make()
  else:
    models = processes.from_first(lambda: {
        name: model.hex() for name, model in vocabularies.model_files(make()).items()})
    vocabulary = vocabularies.from_model_files(
        {name: bytes.fromhex(model) for name, model in models.items()}, 'the first process')
  return RunText(corpora, vocabulary, origin)
