"""Results on disk: how they are named, written, found again, and chosen for a comparison."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformer import files
from transformer.errors import UserError
from transformer.inference.config import DecodeConfig

SENTENCES = '.sentences.jsonl'
_SEARCH = ('beam_size', 'alpha', 'max_extra_length', 'sample')
_SAMPLING = ('temperature', 'top_k', 'top_p')


class Result(NamedTuple):
  """A text as a run translated it, and its scores.

  Attributes:
    run: what people call the run.
    name: what tells it from other results of the run for the text, such as
      `step600.beam4.alpha0.6`.
    path: its file.
    content: what eval.py wrote there.
  """

  run: str
  name: str
  path: Path
  content: dict[str, Any]

  @property
  def files(self) -> tuple[Path, Path]:
    """Its file, and that of its sentences."""
    return self.path, self.path.with_name(self.path.stem + SENTENCES)

  @property
  def decoding(self) -> dict[str, Any]:
    """What two systems have alike that were decoded alike; steps and seeds may differ."""
    decode = self.content['decode']
    return {'average': len(self.content['steps']), 'ensemble': 1 + len(self.content['ensemble']),
            **{key: decode[key] for key in _SEARCH + _SAMPLING * decode['sample']}}


class Decoding(NamedTuple):
  """How a text is translated.

  Attributes:
    config: the search.
    seed: the root of what is sampled.
    ensemble: the other runs of an ensemble.
  """

  config: DecodeConfig
  seed: int
  ensemble: list[str]


class Place(NamedTuple):
  """Where a result goes.

  Attributes:
    folder: None if it is not kept.
    text: what the text is called.
    how: as `describe` says.
  """

  folder: Path | None
  text: str
  how: dict[str, str | int]

  @property
  def stem(self) -> str:
    """The names of its files, without their ends."""
    return '.'.join([self.text, *(f'{key}{value}' for key, value in self.how.items())])

  def check_own(self, workdir: str):
    """Refuses to replace the result of another run, if several share a folder.

    Raises:
      UserError: names that run.
    """
    path = self.folder / f'{self.stem}.json'
    try:
      other = json.loads(path.read_bytes())['workdir']
    except (OSError, ValueError, KeyError, TypeError):
      return
    if other != workdir:
      raise UserError(f'{path} is the result of another run, {other}; give each run a folder of '
                      f'its own by --results')


def describe(steps: Sequence[int], decoding: Decoding) -> dict[str, str | int]:
  """Tells one result for a text from another, for people and for the names of files.

  Args:
    steps: the checkpoints that the parameters come from.
    decoding: how the text was translated.
  """
  config, ensemble = decoding.config, decoding.ensemble
  how = {'step': str(steps[-1]) + f'.average{len(steps)}' * (len(steps) > 1)}
  if ensemble:  # Several of one size are told apart.
    which = hashlib.sha256('\0'.join(ensemble).encode(errors='surrogateescape')).hexdigest()
    how['ensemble'] = f'{1 + len(ensemble)}.{which[:4]}'
  how |= {'samples' if config.sample else 'beam': config.beam_size, 'alpha': f'{config.alpha:g}'}
  if config.sample:
    how |= {'temperature': f'{config.temperature:g}', 'top_k': config.top_k,
            'top_p': f'{config.top_p:g}', 'seed': decoding.seed}
  return how


def write(folder: Path, stem: str, result: dict[str, Any], sentences: Sequence[dict[str, Any]]):
  """Writes both; the result last, so that where it is, the sentences are."""
  lines = (json.dumps(each, ensure_ascii=False) + '\n' for each in sentences)
  files.write(folder / f'{stem}{SENTENCES}', ''.join(lines).encode())
  files.write_json(folder / f'{stem}.json', result)


def find(folder: Path, run: str, text: str) -> list[Result]:
  """Reads all results for a text, in the order of their names.

  Args:
    folder: where they lie; it need not be there.
    run: what people call the run.
    text: as eval.py names it.

  Raises:
    UserError: one is not what eval.py writes.
  """
  return [_read(path, run, text) for path in sorted(folder.glob('*.json'))
          if path.name.startswith(f'{text}.step')]


def _read(path: Path, run: str, text: str) -> Result:
  try:
    found = Result(run, path.stem.removeprefix(f'{text}.'), path,
                   json.loads(path.read_text(encoding='utf-8')))
    found.decoding, found.content['seed'], found.content['decode']['bleu_tokenize']
  except (ValueError, KeyError, TypeError) as error:
    raise UserError(f'{path} should hold a result as eval.py writes it; it cannot be understood '
                    f'({error!r}); score the run again') from error
  return found


def read_sentences(result: Result) -> list[dict[str, Any]]:
  """Reads the sentences of a result.

  Raises:
    UserError: they are not there, or are not what `write` writes.
  """
  path = result.files[1]
  try:
    found = [json.loads(line) for line in path.read_bytes().splitlines()]
    [(each['source'], each['translation'], *each['references']) for each in found]
  except FileNotFoundError as error:
    raise UserError(f'{path} is not there; score the run again with eval.py') from error
  except (ValueError, KeyError, TypeError) as error:
    raise UserError(f'{path} should hold sentences as eval.py writes them; it cannot be understood '
                    f'({error!r}); score the run again') from error
  return found


def matching(results: Sequence[Result], part: str) -> list[Result]:
  """Returns the results whose name ends in a part; or else has it between dots; or else at all."""
  for fits in (lambda name: f'.{name}'.endswith(f'.{part}'),
               lambda name: f'.{part}.' in f'.{name}.', lambda name: part in name):
    if found := [each for each in results if fits(each.name)]:
      return found
  return []


def choose(found: Sequence[Sequence[Result]]) -> list[Result]:
  """Chooses one result of each run: those of the decoding that all have, if there is one.

  Args:
    found: the results of each run for one text, one at least.

  Raises:
    UserError: a run has several all the same.
  """
  decodings = [[each.decoding for each in results] for results in found]
  common = [each for number, each in enumerate(decodings[0])
            if each not in decodings[0][:number] and all(each in other for other in decodings)]
  chosen = []
  for results in found:
    left = [each for each in results if len(common) != 1 or each.decoding == common[0]]
    if len(left) > 1:
      run, name = left[-1].run, left[-1].name
      raise UserError(f'{run} has several results: {", ".join(each.name for each in left)}; choose '
                      f'one for all runs, such as --decoding={name.partition(".")[2]}, or one of '
                      f'this run, as {run}:{name}')
    chosen += left
  return chosen


def check_decoded_alike(results: Sequence[Result]):
  """Refuses systems that were decoded in different ways.

  Raises:
    UserError: says in what two of them differ.
  """
  first = results[0]
  for other in results[1:]:
    ours, theirs = first.decoding, other.decoding
    if ours != theirs:
      keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
      facts = [', '.join(f'{key}={each[key]}' for key in keys if key in each)
               for each in (ours, theirs)]
      raise UserError(f'systems must be decoded alike; {first.run} has {facts[0]}, {other.run} has '
                      f'{facts[1]}; score one again, or choose another result by --decoding=PART '
                      f'or RUN:PART, or allow it by --allow_unequal_decoding')
