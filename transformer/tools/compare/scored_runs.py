"""The results that a comparison reads, and checks that they are comparable."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformer import files
from transformer.errors import UserError, short_repr
from transformer.evaluation import results
from transformer.runs import run_directory
from transformer.system.installation import rewrite_commands


class ScoredRun(NamedTuple):
  """The scores of one run on a text.

  Attributes:
    run: the run, as named by the user.
    result: its result.
    sentences: a JSON object per sentence, with its source, references and translation.
  """

  run: str
  result: results.Result
  sentences: list[dict[str, Any]]

  @property
  def references(self) -> list[list[str]]:
    """The references of each sentence."""
    return [sentence['references'] for sentence in self.sentences]

  @property
  def translations(self) -> list[str]:
    """The translation of each sentence."""
    return [sentence['translation'] for sentence in self.sentences]

  @property
  def tokenizer(self) -> str:
    """BLEU's tokenizer."""
    return self.result.content['decode']['bleu_tokenize']


def read(systems: Sequence[str], text: str) -> dict[str, list[ScoredRun]]:
  """Reads the result of each run of each system, for one text.

  A system is one or more comma-separated runs or result files.

  Raises:
    UserError: a run has no result or several for the text, or two systems share a result.
  """
  scored = {}
  users: dict[Path, str] = {}
  for system in systems:
    seeds = []
    for run in system.split(','):
      result = _result_of(run, text)
      path = result.path.resolve()
      if path in users:
        raise UserError(
          f'each result may appear only once, as a system or as a seed of one; {path} is the '
          f'result of {users[path]} and of {run}; pass a different run or file'
        )
      users[path] = run
      seeds.append(ScoredRun(run, result, result.read_sentences()))
    scored[system] = seeds
  return scored


def _result_of(name: str, text: str) -> results.Result:
  """Returns the result of a run for a text, or the result in a file."""
  path = files.as_path(name)
  if path.suffix == '.json' and not path.is_dir():
    return results.read_result(path)
  folder = path / run_directory.RESULTS
  if not any(folder.glob('*.step*.json')) and any(path.glob('*.step*.json')):
    folder = path  # A folder of eval.py's --results.
  matches = results.read_results(folder, text)
  if not matches:
    others = sorted(other.stem for other in folder.glob('*.step*.json'))
    raise UserError(
      f'{folder} should hold a result for {short_repr(text)}; it holds '
      f'{", ".join(others) or "nothing"}; {rewrite_commands("score the run with eval.py")}, or '
      f'select another set with --split'
    )
  if len(matches) > 1:
    names = ', '.join(result.name for result in matches)
    raise UserError(
      f'{name} has several results: {names}; name the file of one instead of the run, such as '
      f'{matches[-1].path}'
    )
  return matches[0]


def check_same_text(first: ScoredRun, other: ScoredRun):
  """Raises `UserError` if results differ in sources, references or BLEU's tokenizer."""
  differs = ''
  if first.references != other.references or _sources(first) != _sources(other):
    differs = 'sources or references'
  elif first.tokenizer != other.tokenizer:
    differs = 'bleu_tokenize'
  if differs:
    raise UserError(
      f'systems must be scored alike on one text; {first.run} and {other.run} differ in {differs}'
    )


def _sources(scored: ScoredRun) -> list[str]:
  return [sentence['source'] for sentence in scored.sentences]


def check_same_decoding(first: ScoredRun, other: ScoredRun):
  """Raises `UserError` with the differing settings if results differ in decoding."""
  one = first.result.decoding
  two = other.result.decoding
  keys = [key for key in {**one, **two} if one.get(key) != two.get(key)]
  if keys:
    raise UserError(
      f'systems must be decoded alike; {first.run} has {_settings(one, keys)}, {other.run} has '
      f'{_settings(two, keys)}; score one again, or name the file of another result instead of '
      'the run, or allow it with --allow_unequal_decoding'
    )


def _settings(decoding: Mapping[str, Any], keys: Sequence[str]) -> str:
  """Returns the settings of a decoding as text."""
  return ', '.join(f'{key}={decoding.get(key, "none")}' for key in keys)
