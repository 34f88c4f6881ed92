"""Comparison of systems by their scores on one text."""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from transformer import files
from transformer.errors import UserError, optional, shown
from transformer.evaluation import metrics, results
from transformer.runs import run_directory
from transformer.system.installation import spell_commands
from transformer.tools.compare import result_choice, significance


class ScoredRun(NamedTuple):
  """The result of one run, as the user names it, with its sentences."""

  run: str
  result: results.Result
  sentences: list[dict[str, Any]]


def read(systems: Sequence[str], text: str) -> dict[str, list[ScoredRun]]:
  """Reads the result of each run of each system, for one text.

  A system is one or more runs, or files of results, with commas between them.
  """
  if len(set(systems)) < len(systems):
    raise UserError('a system is named twice; name each once')
  names = ','.join(systems).split(',')
  chosen = iter(
    result_choice.choose(names, [_results_of(name, text) for name in names])
  )
  users: dict[Path, str] = {}
  scored: dict[str, list[ScoredRun]] = {}
  for system in systems:
    scored[system] = []
    for name in system.split(','):
      result = next(chosen)
      other = users.setdefault(result.path.resolve(), name)
      if other != name:
        raise UserError(
          f'systems, and the seeds of a system, must be different results; {result.path} is that '
          f'of {other} and of {name}; name the file of another instead of the run'
        )
      scored[system].append(ScoredRun(name, result, result.read_sentences()))
  return scored


def _results_of(name: str, text: str) -> list[results.Result]:
  """Returns the results of a run for a text, or the one of a file."""
  path = files.as_path(name)
  if path.suffix == '.json' and not path.is_dir():
    return [results.read(path)]
  folder = path / run_directory.EVALUATIONS
  if not any(folder.glob('*.step*.json')) and any(path.glob('*.step*.json')):
    folder = path  # A folder of eval.py's --results.
  found = results.read_all(folder, text)
  if not found:
    others = (
      ', '.join(sorted(other.stem for other in folder.glob('*.step*.json')))
      or 'nothing'
    )
    raise UserError(
      f'{folder} should hold a result for {shown(text)}; it holds {others}; '
      f'{spell_commands("score the run with eval.py")}, or name another text by --text'
    )
  return found


def compare(
  systems: Mapping[str, Sequence[ScoredRun]], allow_unequal_decoding: bool = False
) -> dict[str, Any]:
  """Compares each system with the first, the baseline, by the metrics that all results have.

  Refuses systems that differ in the number of seeds, the text or BLEU's tokenizer, and those that
  differ in their decoding unless that is allowed. Returns JSON data.
  """
  names = list(systems)
  everything = [scored for name in names for scored in systems[name]]
  first = everything[0]
  for name, seeds in systems.items():
    if len(seeds) != len(systems[names[0]]):
      raise UserError(
        f'systems must have as many seeds as each other; {names[0]} has '
        f'{len(systems[names[0]])}, {name} has {len(seeds)}'
      )
    for scored in seeds:
      _check_same_text(first, scored)
  if not allow_unequal_decoding:
    runs = [scored.run for scored in everything]
    result_choice.check_decoded_alike(runs, [scored.result for scored in everything])
  signatures = _common_signatures(
    [scored.result.content['metrics'] for scored in everything]
  )
  differences = _differences(list(systems.values()), signatures)
  return {
    'text': first.result.content['text'],
    'sentences': len(first.sentences),
    'signatures': signatures,
    'systems': {
      name: {metric: _statistics(metric, seeds) for metric in signatures}
      for name, seeds in systems.items()
    },
    'results': {name: list(map(_about, seeds)) for name, seeds in systems.items()},
    'differences': dict(zip(names[1:], differences, strict=True)),
  }


def _check_same_text(first: ScoredRun, other: ScoredRun):
  """Refuses results of other sources, references or tokenizers of BLEU."""
  differs = ''
  if _text(first) != _text(other):
    differs = 'sources or references'
  elif _tokenizer(first) != _tokenizer(other):
    differs = 'bleu_tokenize'
  if differs:
    raise UserError(
      f'systems must be scored alike on one text; {first.run} and {other.run} differ in {differs}'
    )


def _text(scored: ScoredRun) -> list[tuple[str, list[str]]]:
  """Returns the sources and the references that a run was scored on."""
  return [(sentence['source'], sentence['references']) for sentence in scored.sentences]


def _tokenizer(scored: ScoredRun) -> str:
  return scored.result.content['decode']['bleu_tokenize']


def _common_signatures(
  metrics_of_runs: Sequence[Sequence[Mapping[str, Any]]],
) -> dict[str, str]:
  """Returns the signatures, by name, of the metrics that all runs have, computed alike.

  A custom metric may be there for some runs only, or be computed in another way.
  """
  common = set.intersection(
    *(set(map(_computation, of_run)) for of_run in metrics_of_runs)
  )
  return {
    metric['name']: metric['signature']
    for metric in metrics_of_runs[0]
    if _computation(metric) in common
  }


def _computation(metric: Mapping[str, Any]) -> tuple[str, str]:
  """Returns a metric's name, and its signature without the version of sacreBLEU."""
  return metric['name'], re.sub(r'\|version:[^|]*', '', metric['signature'])


def _about(scored: ScoredRun) -> dict[str, Any]:
  """Returns which result of a run was taken."""
  content = scored.result.content
  return {
    'run': scored.run,
    'name': scored.result.name,
    'steps': content['steps'],
    'seed': content['seed'],
    'decoding': scored.result.decoding,
  }


def _statistics(metric: str, seeds: Sequence[ScoredRun]) -> dict[str, Any]:
  """Returns the scores of all seeds by a metric, their mean and, of several, their deviation."""
  scores = []
  for scored in seeds:
    rows = scored.result.content['metrics']
    scores += [row['score'] for row in rows if row['name'] == metric]
  return {
    'seeds': scores,
    'mean': statistics.fmean(scores),
    'deviation': statistics.stdev(scores) if len(scores) > 1 else None,
  }


def _differences(
  systems: Sequence[Sequence[ScoredRun]], names: Sequence[str]
) -> list[list[dict[str, Any]]]:
  """Tests each system against the first by each metric, all seeds together.

  Metrics without a test are left out; so are tests that fail, with a warning: scores are worth
  printing without them.
  """
  first = systems[0][0]
  tested: list[list[dict[str, Any]]] = [[] for _ in systems[1:]]
  references = list(
    zip(*(sentence['references'] for sentence in first.sentences), strict=True)
  )
  baseline, *others = [list(map(_translations, seeds)) for seeds in systems]
  for metric in metrics.NAMES:
    if metric not in names:
      continue
    with optional(f'p of {metric} is left out', logging.warning):
      differences = significance.differences(
        metric, baseline, others, references, _tokenizer(first)
      )
      for of_system, difference in zip(tested, differences, strict=True):
        of_system.append(difference)
  return tested


def _translations(scored: ScoredRun) -> list[str]:
  return [sentence['translation'] for sentence in scored.sentences]


def as_table(compared: Mapping[str, Any]) -> list[str]:
  """Returns the lines of a table: systems, their scores, and the p of each difference."""
  signatures = compared['signatures']
  lines = [f'{compared["text"]}, {compared["sentences"]} sentences']
  lines += [f'{name}  {signature}' for name, signature in signatures.items()]
  width = max(map(len, [*compared['systems'], '  p, randomisation']))

  def row(label: str, cells: Iterable[str]) -> str:
    return f'{label:{width}}  {"".join(f"{cell:>16}" for cell in cells)}'.rstrip()

  lines += ['', row('', signatures)]
  for name, scores in compared['systems'].items():
    lines.append(row(name, map(_mean, scores.values())))
    seeds = compared['results'][name]
    for seed in seeds:
      run = f'   [{seed["run"]}]' if len(seeds) > 1 else ''
      lines.append(f'  {seed["name"]}{run}')
    tests = {test['metric']: test for test in compared['differences'].get(name, ())}
    for kind in ('bootstrap', 'randomisation') if tests else ():
      # A custom metric has a score and no test.
      cells = [
        f'{tests[metric][kind]:.4f}' if metric in tests else '' for metric in signatures
      ]
      lines.append(row(f'  p, {kind}', cells))
  return lines


def _mean(score: Mapping[str, Any]) -> str:
  """Returns a mean, with the deviation over seeds if there are several."""
  if score['deviation'] is None:
    return f'{score["mean"]:.2f}'
  return f'{score["mean"]:.2f} ± {score["deviation"]:.2f}'
