"""The files of scores: names, writing and reading."""

import functools
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

from transformer import files
from transformer.decoding.config import DecodeConfig
from transformer.errors import UserError

SENTENCES = '.sentences.jsonl'
_RESULT = 'a result as eval.py writes it'
_SEARCH = ('beam_size', 'alpha', 'max_extra_length', 'sample')
# Results from before `decode.dtype` are of the run's own type.
_BEFORE = {'dtype': DecodeConfig.dtype}
_SAMPLING = ('temperature', 'top_k', 'top_p')
_DIGEST = re.compile('[0-9a-f]{8}')


class Result(NamedTuple):
  """The scores of one text that one run translated, as eval.py wrote them.

  Attributes:
    run: the run, as the user names it.
    name: the name of the file without the text's name, such as `step600.beam4.alpha0.6`.
    path: the JSON file.
    content: the JSON object.
  """

  run: str
  name: str
  path: Path
  content: dict[str, Any]

  @property
  def files(self) -> tuple[Path, Path]:
    """The file of the scores, and the file of the sentences."""
    return self.path, self.path.with_name(self.path.stem + SENTENCES)

  @property
  def fields(self) -> dict[str, str]:
    """The settings by which `describe` tells results apart."""
    content = self.content
    # Results from before have no steps of the other runs, and so another digest in their names.
    steps = content.get('ensemble_steps', [()] * len(content['ensemble']))
    how = describe(content['steps'], Decoding(
        SimpleNamespace(**_BEFORE | content['decode']), content['seed'],
        list(map(Member, content['ensemble'], steps))))
    return how | content.get('more', {})

  @property
  def decoding(self) -> dict[str, Any]:
    """The settings that must be equal in a comparison; steps and seeds may differ."""
    decode = _BEFORE | self.content['decode']
    # A tokenizer is in `more` only if a flag gave it. Digests of earlier versions have 4 digits.
    more = {key: value[:4] if _DIGEST.fullmatch(value) else value
            for key, value in self.content.get('more', {}).items() if key != 'bleu'}
    return {'average': len(self.content['steps']), 'ensemble': 1 + len(self.content['ensemble']),
            'bleu_tokenize': decode['bleu_tokenize'],
            **{key: decode[key] for key in ('dtype', *_SEARCH, *_SAMPLING * decode['sample'])},
            **more}


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
      found = _parse(path, _RESULT, json.loads)
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


def read_all(folder: Path, run: str, text: str) -> list[Result]:
  """Reads all results of a text, in the order of their names.

  Args:
    folder: the folder of the results; it may be missing.
    run: the run, as the user names it.
    text: the name of the text in the names of the files.

  Raises:
    UserError: a file cannot be read, or is not one that eval.py wrote.
  """
  found = [_parse(path, _RESULT, functools.partial(_result, path, run, text))
           for path in sorted(folder.glob('*.json')) if path.name.startswith(f'{text}.step')]
  # The name of another text may begin as a result of this one does.
  return [each for each in found if each.content.get('text', text) == text]


def read(path: Path) -> Result:
  """Reads the result in a file.

  Raises:
    UserError: the file cannot be read, or is not one that eval.py wrote.
  """
  text = _parse(path, _RESULT, lambda content: json.loads(content)['text'])
  return _parse(path, _RESULT, functools.partial(_result, path, str(path), text))


def read_sentences(result: Result) -> list[dict[str, Any]]:
  """Reads the sentences of a result.

  Raises:
    UserError: the file cannot be read, or is not one that eval.py wrote.
  """
  return _parse(result.files[1], 'sentences as eval.py writes them', _sentences)


def _result(path: Path, run: str, text: str, content: bytes) -> Result:
  found = Result(run, path.stem.removeprefix(f'{text}.'), path, json.loads(content))
  found.decoding, found.fields, found.content['decode']['bleu_tokenize']  # Must exist.
  return found


def _sentences(content: bytes) -> list[dict[str, Any]]:
  found = [json.loads(line) for line in content.splitlines()]
  [(each['source'], each['translation'], *each['references']) for each in found]  # Must exist.
  return found


def _parse(path: Path, holds: str, parse: Callable[[bytes], Any]):
  """Returns `parse` of a file's content; `holds` names the content in errors."""
  try:
    return parse(path.read_bytes())
  except OSError as error:
    raise UserError(f'{path} cannot be read: {error.strerror}; score the run again with '
                    f'eval.py') from error
  except (ValueError, KeyError, TypeError, RecursionError) as error:
    raise UserError(f'{path} should hold {holds}; it cannot be understood ({error!r}); score the '
                    f'run again') from error
