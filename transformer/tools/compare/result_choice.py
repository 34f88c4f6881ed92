"""The choice of results for a comparison, by their decoding."""

import json
from collections.abc import Sequence

from transformer.errors import UserError
from transformer.evaluation.results import Result


def choose(runs: Sequence[str], results: Sequence[Sequence[Result]]) -> list[Result]:
  """Chooses one of each run's results for one text, or refuses to if several are left.

  If all runs share exactly one decoding, only the results of that decoding count.
  """
  common = set.intersection(*(set(map(_decoding, of_run)) for of_run in results))
  chosen = []
  for run, of_run in zip(runs, results, strict=True):
    left = of_run
    if len(common) == 1:
      left = [result for result in of_run if _decoding(result) in common]
    if len(left) > 1:
      raise UserError(
        f'{run} has several results: {", ".join(result.name for result in left)}; name the file '
        f'of one instead of the run, such as {left[-1].path}'
      )
    chosen += left
  return chosen


def _decoding(result: Result) -> frozenset:
  # A search with settings is a list, which has no hash.
  return frozenset((key, json.dumps(value)) for key, value in result.decoding.items())


def check_decoded_alike(runs: Sequence[str], results: Sequence[Result]):
  """Refuses results of different decodings; the message names the settings that differ."""
  first = results[0].decoding
  for run, result in zip(runs, results, strict=True):
    other = result.decoding
    keys = [key for key in {**first, **other} if first.get(key) != other.get(key)]
    if keys:
      raise UserError(
        f'systems must be decoded alike; {runs[0]} has {_settings(first, keys)}, {run} has '
        f'{_settings(other, keys)}; score one again, or name the file of another result instead '
        f'of the run, or allow it by --allow_unequal_decoding'
      )


def _settings(decoding, keys: Sequence[str]) -> str:
  """Returns the settings of a decoding as text."""
  return ', '.join(f'{key}={decoding.get(key, "none")}' for key in keys)
