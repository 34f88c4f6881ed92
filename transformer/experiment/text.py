"""The text and the vocabulary that a run trains with."""

from typing import NamedTuple

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


def open_text(config: Config, run) -> RunText:
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
