"""Results: a JSON file of scores with metadata, and a JSONL file of sentences.

A result is found by the fields of its JSON. Its file name shows the same fields in readable form.
"""

import dataclasses
import glob
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformer import files
from transformer.decoding.config import DecodeOptions
from transformer.errors import UserError
from transformer.evaluation.eval_sets import EvalSet
from transformer.runs import run_directory, sealing

_SAMPLING = ('temperature', 'top_k', 'top_p')
# Fields that every result must have.
FIELDS = {
  'text',
  'text_sha256',
  'steps',
  'ensemble',
  'ensemble_steps',
  'decode',
  'seed',
  'more',
}


class Result(NamedTuple):
  """Result metadata, plus scores if read back, and its JSON path (None: not saved)."""

  path: Path | None
  content: Mapping

  @property
  def variant(self) -> dict:
    """The fields that distinguish results of the same text, by name."""
    content = self.content
    decode = content['decode']
    steps = content['steps']
    others = content['ensemble']
    variant = {'step': steps[-1]} if steps else {}
    if len(steps) > 1:
      variant['average'] = len(steps)
    if others:  # A digest distinguishes ensembles of the same size.
      members = zip(others, content['ensemble_steps'], strict=True)
      digest = _digest(f'{other} {member_steps}' for other, member_steps in members)
      variant['ensemble'] = f'{1 + len(others)}.{digest}'
    variant['samples' if decode['sample'] else 'beam'] = decode['beam_size']
    variant['alpha'] = f'{decode["alpha"]:g}'
    if decode['sample']:
      variant |= {name: f'{decode[name]:g}' for name in _SAMPLING}
      variant['seed'] = content['seed']
    if decode['search'] != 'default':
      variant['search'] = _digest([json.dumps(decode['search'])])
    if decode['dtype'] != 'trained':
      variant['dtype'] = decode['dtype']
    return variant | content['more']

  @property
  def name(self) -> str:
    """The same fields as text, such as `step600.beam4.alpha0.6`."""
    return '.'.join(f'{key}{value}' for key, value in self.variant.items())

  @property
  def decoding(self) -> dict:
    """The settings that must match in a comparison; steps and seeds may differ."""
    decode = self.content['decode']
    settings = {
      'average': len(self.content['steps']),
      'ensemble': 1 + len(self.content['ensemble']),
      **decode,
      **self.content['more'],
    }
    unread = {'batch_size', 'bleu', *(() if decode['sample'] else _SAMPLING)}
    return {key: value for key, value in settings.items() if key not in unread}

  @property
  def sentences_path(self) -> Path:
    """The file of the sentences, with one JSON object per line."""
    return self.path.with_suffix('.sentences.jsonl')

  def check_overwrite(self):
    """Raises `UserError` if the file is the result of a different run or text."""
    try:
      previous = json.loads(self.path.read_bytes())
      run = previous['workdir']
      digest = previous.get('text_sha256')
    except (OSError, ValueError, KeyError, TypeError):
      return  # The file is missing or corrupt, and may be overwritten.
    workdir = self.content['workdir']
    # Results in a run's directory belong to the run, even if it was moved.
    if run != workdir and not self.path.resolve().is_relative_to(workdir):
      raise UserError(
        f'{self.path} is the result of a different run, {run}; pass a separate folder for each '
        'run: --results=FOLDER'
      )
    if digest != self.content['text_sha256']:
      raise UserError(
        f'{self.path} is the result of a different text with the same name; to keep both, pass '
        '--results=FOLDER, or else remove the file'
      )

  def write(self, scores: Mapping, sentences: Sequence | None = None):
    """Writes the sentences, if given, then the metadata with scores; both are JSON data."""
    self.check_overwrite()
    if sentences is not None:
      lines = [json.dumps(sentence, ensure_ascii=False) for sentence in sentences]
      files.write(self.sentences_path, '\n'.join([*lines, '']).encode())
    files.write_json(self.path, {**self.content, **scores})

  def read_sentences(self) -> list:
    """Returns the sentences of the result, parsed from JSON."""
    return _read(
      self.sentences_path, lambda data: list(map(json.loads, data.splitlines()))
    )


def metadata(
  eval_set: EvalSet, members: Sequence, decoding: DecodeOptions, **lines: Sequence[str]
) -> dict:
  """Returns the metadata of a result; `members` are the run and the others of its ensemble.

  `lines` are further inputs by name; only their digests are recorded.
  """
  run, *others = members
  extra = {name: _digest(texts) for name, texts in lines.items() if texts}
  if decoding.bleu_tokenize != run.config.decode.bleu_tokenize:
    extra['bleu'] = decoding.bleu_tokenize
  return {
    'text': eval_set.name,
    'text_sha256': eval_set.digest,
    'workdir': str(run.workdir.resolve()),
    'steps': run.checkpoint_steps,
    'checkpoints_sha256': checkpoint_digests(run),
    'ensemble': [str(other.workdir.resolve()) for other in others],
    'ensemble_steps': [other.checkpoint_steps for other in others],
    'ensemble_checkpoints_sha256': [checkpoint_digests(other) for other in others],
    'more': extra,
    'commit': run_directory.commit(),
    **run_directory.versions(),
    'command': sys.argv[1:],
    'decode': decode_metadata(decoding),
    'seed': decoding.seed if decoding.sample else None,
  }


def decode_metadata(decoding: DecodeOptions) -> dict:
  """Returns a result's `decode`: the decoding options that affect its scores."""
  options = dataclasses.asdict(decoding)
  del options['nbest'], options['seed']
  return options


def checkpoint_digests(run) -> list[str | None]:
  """Returns the digest of each checkpoint in `run.checkpoint_steps`; None if it was deleted."""
  checkpoints = run.workdir / run_directory.CHECKPOINTS
  return [sealing.digest_of(checkpoints / str(step)) for step in run.checkpoint_steps]


def new_result(folder: Path, content: Mapping, kind: str = '') -> Result:
  """Returns a new result in a folder; `kind` follows the name of the text in its file name.

  Raises `UserError` if the file is the result of a different run or text.
  """
  name = f'{content["text"]}{kind}.{Result(None, content).name}'
  result = Result(folder / f'{name}.json', content)
  result.check_overwrite()
  return result


def read_result(path: Path) -> Result:
  """Returns the result in a file; raises `UserError` if it is unreadable or lacks fields."""
  result = Result(path, _read(path, lambda data: dict(json.loads(data))))
  missing = FIELDS - result.content.keys()
  if missing:
    raise UserError(
      f'{path} is incomplete: it lacks {", ".join(sorted(missing))}; score the run again'
    )
  return result


def read_results(folder: Path, text: str) -> list[Result]:
  """Returns all results of a text, sorted by file name; [] if the folder is missing."""
  paths = sorted(folder.glob(f'{glob.escape(text)}.step*.json'))
  # The pattern may also match results of another text, whose name starts like theirs.
  return [
    result for result in map(read_result, paths) if result.content['text'] == text
  ]


def _digest(lines: Iterable[str]) -> str:
  content = '\0'.join(lines).encode(errors='surrogateescape')
  return hashlib.sha256(content).hexdigest()[:8]


def _read(path: Path, parse: Callable) -> Any:
  try:
    return parse(path.read_bytes())
  except (OSError, ValueError, TypeError) as error:
    reason = getattr(error, 'strerror', error)
    raise UserError(
      f'{path} cannot be read as a result of eval.py: {reason}; score the run again'
    ) from error
