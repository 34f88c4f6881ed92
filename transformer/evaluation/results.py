"""The files of scores: names, writing, reading, and the choice of results for a comparison."""

import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformer import files
from transformer.errors import UserError
from transformer.inference.config import DecodeConfig

SENTENCES = '.sentences.jsonl'
_RESULT = 'a result as eval.py writes it'
_SEARCH = ('beam_size', 'alpha', 'max_extra_length', 'sample')
# Results from before `decode.dtype` are of the run's own type.
_BEFORE = {'dtype': DecodeConfig.dtype}
_SAMPLING = ('temperature', 'top_k', 'top_p')
_DIGESTS = ('prefix', 'require', 'avoid')


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
  def decoding(self) -> dict[str, Any]:
    """The settings that must be equal in a comparison; steps and seeds may differ."""
    decode = _BEFORE | self.content['decode']
    # A tokenizer is in `more` only if a flag gave it. Digests of earlier versions have 4 digits.
    more = {key: value[:4] if key in _DIGESTS else value
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
    prefixes: what each translation had to begin with; nothing if all were free.
    required: what each translation had to contain; nothing if all were free.
    avoided: what no translation was allowed to hold.
    utility: the metric of minimum Bayes risk, which chooses among the candidates of the search;
      '' takes the candidate with the best score.
    tokenize: BLEU's tokenizer, if it is not the one of the run's config.
  """

  config: DecodeConfig
  seed: int
  ensemble: Sequence[Member]
  prefixes: Sequence[str] = ()
  required: Sequence[Sequence[str]] = ()
  avoided: Sequence[str] = ()
  utility: str = ''
  tokenize: str = ''

  @property
  def more(self) -> dict[str, str]:
    """What there is beyond the search: utility, tokenizer, and digests of prefixes and phrases."""
    found = {'prefix': self.prefixes and _digest(self.prefixes),
             'require': self.required and _digest(['\t'.join(each) for each in self.required]),
             'avoid': self.avoided and _digest(self.avoided), 'mbr': self.utility,
             'bleu': self.tokenize}
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
    """Checks that the place does not hold the result of another run or text.

    Args:
      run: the directory of the run. Results inside that directory belong to the run, even if it has
        moved.
      digest: the SHA-256 of the text.

    Raises:
      UserError: the place holds the result of another run or text.
    """
    if self.folder is None:
      return
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


def describe_models(steps: Sequence[int], ensemble: Sequence[Member]) -> dict[str, str | int]:
  """Returns the names and values that distinguish the models of results.

  Args:
    steps: the steps of the checkpoints whose parameters were averaged; often one.
    ensemble: the other runs of an ensemble.
  """
  how = {'step': str(steps[-1]) + f'.average{len(steps)}' * (len(steps) > 1)}
  if ensemble:  # A digest distinguishes ensembles of the same size.
    digest = _digest([f'{each.workdir} {[*each.steps]}' for each in ensemble])
    how['ensemble'] = f'{1 + len(ensemble)}.{digest}'
  return how


def describe(steps: Sequence[int], decoding: Decoding) -> dict[str, str | int]:
  """Returns the names and values that distinguish the results of one text.

  Args:
    steps: as in `describe_models`.
    decoding: the settings of the translation.
  """
  config, how = decoding.config, describe_models(steps, decoding.ensemble)
  how |= {'samples' if config.sample else 'beam': config.beam_size, 'alpha': f'{config.alpha:g}'}
  if config.sample:
    how |= {'temperature': f'{config.temperature:g}', 'top_k': config.top_k,
            'top_p': f'{config.top_p:g}', 'seed': decoding.seed}
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
  return [_parse(path, _RESULT, functools.partial(_result, path, run, text))
          for path in sorted(folder.glob('*.json')) if path.name.startswith(f'{text}.step')]


def read_sentences(result: Result) -> list[dict[str, Any]]:
  """Reads the sentences of a result.

  Raises:
    UserError: the file cannot be read, or is not one that eval.py wrote.
  """
  return _parse(result.files[1], 'sentences as eval.py writes them', _sentences)


def _result(path: Path, run: str, text: str, content: bytes) -> Result:
  found = Result(run, path.stem.removeprefix(f'{text}.'), path, json.loads(content))
  found.decoding, found.content['seed'], found.content['decode']['bleu_tokenize']  # Must exist.
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


def matching(results: Sequence[Result], part: str) -> list[Result]:
  """Returns the results whose name has a part: at its end, else between dots, else anywhere.

  A number is never a part of a longer one: `step8` is not in `step80`, nor `alpha0` in `alpha0.6`.
  """
  whole = re.escape(part)
  if part[:1].isdigit():
    whole = rf'(?<!\d){whole}'
  if part[-1:].isdigit():  # Neither a longer number nor a fraction may follow; a digest may.
    whole = rf'{whole}(?!\d|\.(?!\d{{8}}(\.|$))\d+(\.|$))'
  end = rf'{re.escape(part)}$'
  for pattern in (rf'^step\d+\.{end}', rf'(^|\.){end}', rf'(^|\.){whole}(\.|$)', whole):
    if found := [each for each in results if re.search(pattern, each.name)]:
      return found
  return []


def choose(found: Sequence[Sequence[Result]]) -> list[Result]:
  """Chooses one result of each run.

  If all runs share exactly one decoding, only the results of that decoding count.

  Args:
    found: the results of each run for one text, at least one each.

  Raises:
    UserError: several results of a run are left.
  """
  decodings = [[each.decoding for each in results] for results in found]
  common = [each for number, each in enumerate(decodings[0])
            if each not in decodings[0][:number] and all(each in other for other in decodings)]
  chosen = []
  for results in found:
    left = [each for each in results if len(common) != 1 or each.decoding == common[0]]
    if len(left) > 1:
      run, name = left[-1].run, left[-1].name
      decoding = name.partition('.')[2]
      for_all = (f'one for all runs, such as --decoding={decoding}, or '
                 if len(matching(left, decoding)) == 1 else '')
      raise UserError(f'{run} has several results: {", ".join(each.name for each in left)}; choose '
                      f'{for_all}one of this run, as {run}:{name}')
    chosen += left
  return chosen


def check_decoded_alike(results: Sequence[Result]):
  """Checks that all results come from the same decoding.

  Raises:
    UserError: the decodings differ; the message names the settings that differ.
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
