"""The choice of results for a comparison, by their settings."""

import re
from collections.abc import Sequence

from transformer.errors import UserError
from transformer.evaluation.result_files import Result

# The value of a setting that a result does not name.
_USUAL = {'average': '1', 'ensemble': '1', 'dtype': 'trained'}
_NUMBERS = ('step', 'average', 'beam', 'samples', 'alpha', 'temperature', 'top_k', 'top_p', 'seed')
# Settings of some results only.
_FURTHER = ('average', 'ensemble', 'dtype', 'prefix', 'require', 'avoid', 'mbr', 'bleu')
LATEST = 'latest'
_NUMBER = re.compile(r'(\d+(\.\d+)?(e-?\d+)?)?')
_NAMES = tuple(dict.fromkeys((*_NUMBERS, *_FURTHER)))
_SETTING = re.compile(rf'({"|".join(_NAMES)})(.*)|({LATEST})')


def matching(results: Sequence[Result], wanted: str) -> list[Result]:
  """Returns the results that have the wanted settings, and the fewest further ones.

  Args:
    results: the results of a run.
    wanted: the whole name of a result, or settings as in names, with dots between them. A setting
      without a value is one that a result must have. `latest` is the latest step of a result.

  Raises:
    UserError: there is no such setting.
  """
  if exact := [each for each in results if each.name == wanted]:
    return exact
  settings = _parse(wanted)
  found = [each for each in results if all(
      _agrees(name, value, each.fields) for name, value in settings.items() if name != LATEST)]
  if LATEST in settings and found:
    latest = max(each.content['steps'][-1] for each in found)
    found = [each for each in found if each.content['steps'][-1] == latest]
  further = [len((each.fields.keys() & set(_FURTHER)) - settings.keys()) for each in found]
  return [each for each, count in zip(found, further, strict=True)
          if not settings or count == min(further)]


def _parse(wanted: str) -> dict[str, str]:
  """Returns the value of each wanted setting, by name."""
  settings = {}
  for text in re.split(rf'\.(?={"|".join((*_NAMES, LATEST))})', wanted) if wanted else ():
    setting = _SETTING.fullmatch(text)
    if not setting or (setting[1] in _NUMBERS and not _NUMBER.fullmatch(setting[2])):
      raise UserError(f'a result is chosen by settings with dots between them, such as '
                      f'step600.average5.beam4; got {wanted!r}; the settings are best, {LATEST}, '
                      f'{", ".join(_NAMES)}')
    settings[setting[1] or LATEST] = setting[2]
  return settings


def _agrees(name: str, wanted: str, fields: dict[str, str]) -> bool:
  """Returns whether a result has the wanted value of a setting."""
  if not wanted:
    return name in fields
  value = fields.get(name, _USUAL.get(name, ''))
  if name in _NUMBERS and value:
    return float(value) == float(wanted)
  return f'{value}.'.startswith(f'{wanted}.')  # A size may be named without its digest.


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
               or f'no {" and no ".join(keys)}' for each in (ours, theirs)]
      raise UserError(f'systems must be decoded alike; {first.run} has {facts[0]}, {other.run} has '
                      f'{facts[1]}; score one again, or choose another result by '
                      f'--decoding=SETTINGS or RUN:SETTINGS, or allow it by '
                      f'--allow_unequal_decoding')
