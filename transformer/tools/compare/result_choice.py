"""The choice of results for a comparison, by their settings."""

import re
from collections.abc import Sequence

from transformer.errors import UserError, shown
from transformer.evaluation.results import Result

_NUMBERS = ('step', 'average', 'beam', 'samples', 'alpha', 'temperature', 'top_k', 'top_p', 'seed')
_NAMES = (
  'latest',
  *_NUMBERS,
  'ensemble',
  'dtype',
  'prefix',
  'require',
  'avoid',
  'lines',
  'mbr',
  'bleu',
)
_SETTING = re.compile(rf'({"|".join(_NAMES)})(.*)')


def matching(results: Sequence[Result], wanted: str) -> list[Result]:
  """Returns the results of a run that have the wanted settings, and the fewest other ones.

  A setting without a value, such as `avoid`, must be there; `latest` is the latest step.
  """
  if not wanted:
    return list(results)
  try:
    settings = dict(
      _SETTING.fullmatch(text).groups() for text in re.split(rf'\.(?={"|".join(_NAMES)})', wanted)
    )
    latest = settings.pop('latest', None)
    if latest:
      raise ValueError(latest)
    left = [
      result
      for result in results
      if all(
        name in result.how and _agrees(name, value, result.how[name])
        for name, value in settings.items()
      )
    ]
  except (AttributeError, ValueError) as error:
    raise UserError(
      f'a result is chosen by settings with dots between them, such as '
      f'step600.average5.beam4; got {shown(wanted)}; the settings are best, '
      f'{", ".join(_NAMES)}'
    ) from error
  if latest is not None:
    last = max((result.content['steps'][-1] for result in left), default=None)
    left = [result for result in left if result.content['steps'][-1] == last]
  fewest = min((len(result.how) for result in left), default=None)
  return [result for result in left if len(result.how) == fewest]


def _agrees(name: str, wanted: str, value: str) -> bool:
  if wanted and name in _NUMBERS:
    return float(value) == float(wanted)
  return not wanted or f'{value}.'.startswith(f'{wanted}.')  # A size, without its digest.


def choose(runs: Sequence[str], results: Sequence[Sequence[Result]]) -> list[Result]:
  """Chooses one of each run's results for one text, or refuses to if several are left.

  If all runs share exactly one decoding, only the results of that decoding count.
  """
  common = set.intersection(
    *({frozenset(result.decoding.items()) for result in of_run} for of_run in results)
  )
  chosen = []
  for run, of_run in zip(runs, results, strict=True):
    left = [
      result
      for result in of_run
      if len(common) != 1 or frozenset(result.decoding.items()) in common
    ]
    if len(left) > 1:
      raise UserError(
        f'{run} has several results: {", ".join(result.name for result in left)}; '
        f'choose one of this run, as {run}:{left[-1].name}, or one for all runs, as '
        f'--decoding={left[-1].name.partition(".")[2]}'
      )
    chosen += left
  return chosen


def check_decoded_alike(runs: Sequence[str], results: Sequence[Result]):
  """Refuses results of different decodings; the message names the settings that differ."""
  first = results[0].decoding
  for run, result in zip(runs, results, strict=True):
    other = result.decoding
    if keys := [key for key in {**first, **other} if first.get(key) != other.get(key)]:
      facts = [
        ', '.join(f'{key}={decoding.get(key, "none")}' for key in keys)
        for decoding in (first, other)
      ]
      raise UserError(
        f'systems must be decoded alike; {runs[0]} has {facts[0]}, {run} has '
        f'{facts[1]}; score one again, or choose another result by '
        f'--decoding=SETTINGS or RUN:SETTINGS, or allow it by '
        f'--allow_unequal_decoding'
      )
