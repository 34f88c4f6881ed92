"""The facts in a run's directory: settings, run.json, and the scores in eval/."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformer.config import Config
from transformer.errors import UserError, one_line
from transformer.evaluation.results import FIELDS, Result
from transformer.runs.run_directory import RESULTS, read_config, read_record

# A file in eval/ with these keys holds the scores of translations of one text.
_KEYS = FIELDS | {'metrics'}


class RunFacts(NamedTuple):
  """All facts of a run.

  Attributes:
    record: the content of run.json.
    scores: all results in eval/, results on the test split first.
    steps: the checkpoints whose mean is the model; empty if no checkpoint could be loaded.
    export: the format of an exported model, such as `huggingface`; '' for the run itself.
  """

  workdir: Path
  config: Config
  record: Mapping[str, Any]
  scores: Sequence[Result]
  steps: Sequence[int] = ()
  export: str = ''

  @property
  def name(self) -> str:
    """The name of the run's folder."""
    return one_line(self.workdir.resolve().name)

  @property
  def scores_of_steps(self) -> Sequence[Result]:
    """The scores of the model of `steps`; all scores if it has none and is not an export."""
    matches = []
    for result in self.scores:
      content = result.content
      if content['steps'] == list(self.steps) and not content.get('ensemble'):
        matches.append(result)
    return matches if matches or self.export else self.scores


def read_facts(workdir: Path) -> RunFacts:
  """Reads the facts of a run, without its checkpoints.

  Raises `UserError` if the directory is not a run, or a file is corrupt.
  """
  config = read_config(workdir)
  record = read_record(workdir)
  scores = []
  for path in (workdir / RESULTS).glob('*.json'):
    content = _read_object(path)
    if content.keys() >= _KEYS:
      scores.append(Result(path, content))

  def order(result: Result) -> tuple:
    text = result.content['text']
    return text != config.data.test, text, result.content['steps'], result.path

  return RunFacts(workdir, config, record, sorted(scores, key=order))


def _read_object(path: Path) -> dict[str, Any]:
  """Reads a JSON object; raises `UserError` if it is corrupt."""
  try:
    return dict(json.loads(path.read_bytes()))
  except (ValueError, TypeError) as error:
    raise UserError(
      f'{path} is not a JSON object ({error}); score the run again'
    ) from error
