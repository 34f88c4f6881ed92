"""The facts in the directory of a run: its settings, its record, and the scores in eval/."""

import json
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from transformer.config import Config
from transformer.errors import UserError, readable
from transformer.runs.run_directory import EVALUATIONS, read_record, read_settings

# The keys by which a file in eval/ is known to hold the scores of translations of one text.
_KEYS = {'text', 'text_sha256', 'steps', 'metrics', 'decode'}
_SENTENCE = {'source', 'references', 'translation'}


class Scored(NamedTuple):
  """The scores of one text, as `eval.py` and tools write them."""

  path: Path
  content: Mapping[str, Any]

  @property
  def how(self) -> str:
    """The checkpoint and the decoding, as in the file's name: `step600.beam4.alpha0.6`."""
    return self.path.stem.removeprefix(f'{self.content["text"]}.')

  def read_sentences(self) -> list[dict[str, Any]]:
    """Returns the source, references, translation and scores of each sentence; [] without a file.

    Raises `UserError` if the file is damaged.
    """
    path = self.path.with_name(f'{self.path.stem}.sentences.jsonl')
    if not path.exists():
      return []
    return [_parse(line, path, _SENTENCE) for line in path.read_bytes().splitlines()]


class RunFacts(NamedTuple):
  """All facts of a run.

  Attributes:
    record: the content of run.json.
    scores: all results in eval/, those of the test split first.
    steps: the checkpoints whose mean the model is; empty if no checkpoint could be loaded.
  """

  workdir: Path
  config: Config
  record: Mapping[str, Any]
  scores: Sequence[Scored]
  steps: Sequence[int] = ()

  @property
  def name(self) -> str:
    """The name of the run's folder."""
    return readable(self.workdir.resolve().name)

  @property
  def scores_of_steps(self) -> Sequence[Scored]:
    """The scores of the model of `steps`; if it has none, all scores."""
    found = []
    for scored in self.scores:
      alone = not scored.content.get('ensemble')
      if alone and scored.content['steps'] == list(self.steps):
        found.append(scored)
    return found or self.scores


def read_facts(workdir: Path) -> RunFacts:
  """Reads the facts of a run, without its checkpoints.

  Raises `UserError` if the directory holds no run, or a damaged file.
  """
  config = read_settings(workdir)
  record = read_record(workdir)
  scores = []
  for path in (workdir / EVALUATIONS).glob('*.json'):
    content = _parse(path.read_bytes(), path)
    if content.keys() >= _KEYS:
      scores.append(Scored(path, content))

  def order(scored: Scored) -> tuple:
    content = scored.content
    return (
      content['text'] != config.data.test,
      content['text'],
      content['steps'],
      scored.path,
    )

  return RunFacts(workdir, config, record, sorted(scores, key=order))


def _parse(data: bytes, path: Path, keys: Set[str] = frozenset()) -> dict[str, Any]:
  """Returns a JSON object; raises `UserError` if it is none, or lacks one of the keys."""
  try:
    content = json.loads(data)
  except ValueError as error:
    raise UserError(f'{path} is no JSON ({error}); score the run again') from error
  if not isinstance(content, dict) or not content.keys() >= keys:
    raise UserError(f'{path} is not as eval.py writes it; score the run again')
  return content
