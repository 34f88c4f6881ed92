"""Reads results as eval.py writes them."""

import functools
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from transformer.decoding.config import DecodeConfig
from transformer.evaluation.results import RESULT, SENTENCES, Decoding, Member, describe, parse_file

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


def read_all(folder: Path, run: str, text: str) -> list[Result]:
  """Reads all results of a text, in the order of their names.

  Args:
    folder: the folder of the results; it may be missing.
    run: the run, as the user names it.
    text: the name of the text in the names of the files.

  Raises:
    UserError: a file cannot be read, or is not one that eval.py wrote.
  """
  found = [parse_file(path, RESULT, functools.partial(_result, path, run, text))
           for path in sorted(folder.glob('*.json')) if path.name.startswith(f'{text}.step')]
  # The name of another text may begin as a result of this one does.
  return [each for each in found if each.content.get('text', text) == text]


def read(path: Path) -> Result:
  """Reads the result in a file.

  Raises:
    UserError: the file cannot be read, or is not one that eval.py wrote.
  """
  text = parse_file(path, RESULT, lambda content: json.loads(content)['text'])
  return parse_file(path, RESULT, functools.partial(_result, path, str(path), text))


def read_sentences(result: Result) -> list[dict[str, Any]]:
  """Reads the sentences of a result.

  Raises:
    UserError: the file cannot be read, or is not one that eval.py wrote.
  """
  return parse_file(result.files[1], 'sentences as eval.py writes them', _sentences)


def _result(path: Path, run: str, text: str, content: bytes) -> Result:
  found = Result(run, path.stem.removeprefix(f'{text}.'), path, json.loads(content))
  assert found.decoding and found.fields  # A KeyError says what it lacks.
  return found


def _sentences(content: bytes) -> list[dict[str, Any]]:
  sentences = [json.loads(line) for line in content.splitlines()]
  for sentence in sentences:
    if missing := {'source', 'translation', 'references'} - set(sentence):
      raise KeyError(*missing)
  return sentences
