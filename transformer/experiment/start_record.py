"""What a run's directory records when the run starts or resumes."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from transformer import files, own_code
from transformer.config import Config
from transformer.data.corpora import Corpora, EncodedCorpora
from transformer.data.vocabulary import vocabularies
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.experiment.origin import describe_origin
from transformer.model.flops import update_flops
from transformer.runs import record, resuming, run_directory
from transformer.runs.loading import Run
from transformer.training.objective import Objective


class Start(NamedTuple):
  """What a run starts with.

  Attributes:
    corpora: its text.
    vocabulary: its vocabulary.
    encoded: the encoded text.
    parameters: the number of the model's parameters.
    objective: what its updates minimise.
    origin: () -> the run of `train.init_from`; None if there is none.
    ended: whether the run had made its last step before.
  """

  corpora: Corpora
  vocabulary: RunVocabulary
  encoded: EncodedCorpora
  parameters: int
  objective: Objective
  origin: Callable[[], Run] | None
  ended: bool


def record_start(workdir: Path, config: Config, start: Start):
  """Writes the settings, the vocabulary and `run.json`.

  Raises:
    UserError: the directory holds a run with other settings, data or frozen arrays.
  """
  # train.py has compared the settings, but another run may have begun before the lock was taken.
  changes = resuming.changed_settings(workdir, config)
  fingerprints = {**vocabularies.fingerprints(start.vocabulary), **start.corpora.fingerprints()}
  resumed, own = run_directory.has_begun(workdir), own_code.digests(config.own_code)
  if resumed:
    resuming.check_same_data(workdir, fingerprints)
    if 'train.init_from' in changes:
      resuming.check_same_origin(workdir, describe_origin(start.origin(), start.vocabulary))
    if not start.ended:
      resuming.check_same_sources(workdir, start.objective.sources)
    if changes or not start.ended:
      # Before the config, so that no change of a setting goes unrecorded.
      record.add_session(workdir, config.train.reproducible, changes, not start.ended,
                                own)
  files.write_sealed(workdir / run_directory.CONFIG, config.to_dict())
  vocabularies.save(start.vocabulary, workdir)
  if not resumed:
    flops = update_flops(config.model, start.vocabulary.target.size, start.encoded.batches.shape,
                         start.objective.passes, start.objective.forwards)
    files.write_sealed(workdir / run_directory.RUN, record.describe(
        fingerprints, start.encoded.counts, start.parameters, flops, config.train.reproducible,
        start.origin and describe_origin(start.origin(), start.vocabulary),
        start.objective.sources) | {'own_code': own})
