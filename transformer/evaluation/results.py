"""The files of scores: their names, and how they are written."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from transformer import files
from transformer.decoding.config import DecodeConfig
from transformer.errors import UserError

SENTENCES = '.sentences.jsonl'
RESULT = 'a result as eval.py writes it'


class Member(NamedTuple):
  """Another run of an ensemble.

  Attributes:
    workdir: its directory, in full.
    steps: the steps of its checkpoints whose parameters were averaged; often one.
  """

  workdir: str
  steps: Sequence[int]


class Decoding(NamedTuple):
  """The settings of a translation.

  Attributes:
    config: the search.
    seed: the seed of sampling.
    ensemble: the other runs of an ensemble.
    constraints: the lines that say what translations had to obey, by the name of their flag.
    tokenize: BLEU's tokenizer, if it is not the one of the run's config.
  """

  config: DecodeConfig
  seed: int
  ensemble: Sequence[Member]
  constraints: Mapping[str, Sequence[str]] = MappingProxyType({})
  tokenize: str = ''

  @property
  def more(self) -> dict[str, str]:
    """What there is beyond the search: the tokenizer, and digests of constraints."""
    found = {name: lines and _digest(lines) for name, lines in self.constraints.items()}
    found |= {'bleu': self.tokenize}
    return {name: value for name, value in found.items() if value}


class Place(NamedTuple):
  """The place of a result on disk.

  Attributes:
    folder: the folder; None if the result is not kept.
    text: the name of the text.
    how: the checkpoint and the search, from `describe`.
  """

  folder: Path | None
  text: str
  how: dict[str, str | int]

  @property
  def stem(self) -> str:
    """The beginning of the file names `STEM.json` and `STEM.sentences.jsonl`."""
    return '.'.join([self.text, *(f'{key}{value}' for key, value in self.how.items())])

  def check_own(self, run: Path, digest: str):
    """Checks that the place can have its name, and holds no result of another run or text.

    Args:
      run: the directory of the run. Results inside that directory belong to the run, even if it has
        moved.
      digest: the SHA-256 of the text.

    Raises:
      UserError: the place holds the result of another run or text, or its name is too long.
    """
    if self.folder is None:
      return
    if (excess := len(os.fsencode(self.stem + SENTENCES)) - files.LONGEST_NAME) > 0:
      raise UserError(f'the name of a result, {self.stem}, is {excess} bytes too long for a file; '
                      f'rename the text, or give --source a link to it with a shorter name')
    path = self.folder / f'{self.stem}.json'
    try:
      found = parse_file(path, RESULT, json.loads)
      other, text = found['workdir'], found.get('text_sha256')
    except (UserError, KeyError, TypeError):  # No file, or a damaged one: either may be written.
      return
    if other != str(run.resolve()) and not self.folder.resolve().is_relative_to(run.resolve()):
      raise UserError(f'{path} is the result of another run, {other}; give each run a folder of '
                      f'its own by --results')
    if text not in (None, digest):  # Earlier versions recorded none.
      raise UserError(f'{path} is the result of another text of that name; keep both by '
                      f'--results=FOLDER, or remove the file')

  def write(self, run: Path, digest: str, result: Mapping[str, Any],
            sentences: Sequence[Mapping[str, Any]] | None = None):
    """Writes the sentences, then the result; so a result on disk always has its sentences.

    Args:
      run: the directory of the run.
      digest: the SHA-256 of the text.
      result: the scores of the text; the run and the digest are added to them.
      sentences: the scores of each sentence; None writes no file of sentences.

    Raises:
      UserError: another command has written the result of another run or text there meanwhile,
        or a file cannot be written.
    """
    self.check_own(run, digest)
    if sentences is not None:
      lines = (json.dumps(each, ensure_ascii=False) + '\n' for each in sentences)
      files.write(self.folder / f'{self.stem}{SENTENCES}', ''.join(lines).encode())
    files.write_json(self.folder / f'{self.stem}.json',
                     {**result, 'workdir': str(run.resolve()), 'text_sha256': digest})


def describe_models(steps: Sequence[int], ensemble: Sequence[Member]) -> dict[str, str]:
  """Returns the names and values that distinguish the models of results.

  Args:
    steps: the steps of the checkpoints whose parameters were averaged; often one.
    ensemble: the other runs of an ensemble.
  """
  how = {'step': str(steps[-1])}
  if len(steps) > 1:
    how['average'] = str(len(steps))
  if ensemble:  # A digest distinguishes ensembles of the same size.
    digest = _digest([f'{each.workdir} {[*each.steps]}' for each in ensemble])
    how['ensemble'] = f'{1 + len(ensemble)}.{digest}'
  return how


def describe(steps: Sequence[int], decoding: Decoding) -> dict[str, str]:
  """Returns the names and values that distinguish the results of one text.

  Args:
    steps: as in `describe_models`.
    decoding: the settings of the translation.
  """
  config, how = decoding.config, describe_models(steps, decoding.ensemble)
  how |= {'samples' if config.sample else 'beam': str(config.beam_size),
          'alpha': f'{config.alpha:g}'}
  if config.sample:
    how |= {'temperature': f'{config.temperature:g}', 'top_k': str(config.top_k),
            'top_p': f'{config.top_p:g}', 'seed': str(decoding.seed)}
  if config.dtype != DecodeConfig.dtype:
    how['dtype'] = config.dtype
  return how | decoding.more


def _digest(lines: Sequence[str]) -> str:
  return hashlib.sha256('\0'.join(lines).encode(errors='surrogateescape')).hexdigest()[:8]


def parse_file(path: Path, holds: str, parse: Callable[[bytes], Any]):
  """Returns `parse` of a file's content; `holds` names the content in errors."""
  try:
    return parse(path.read_bytes())
  except OSError as error:
    raise UserError(f'{path} cannot be read: {error.strerror}; score the run again with '
                    f'eval.py') from error
  except (ValueError, KeyError, TypeError, RecursionError) as error:
    raise UserError(f'{path} should hold {holds}; it cannot be understood ({error!r}); score the '
                    f'run again') from error
