"""Comparison of systems by their scores on one text."""

import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from transformer import files
from transformer.errors import UserError, optional, shown
from transformer.evaluation import metrics, results
from transformer.evaluation.scores import seed_of_samples
from transformer.runs import run_directory
from transformer.system.installation import spell_commands
from transformer.tools.compare import result_choice, significance


class ScoredRun(NamedTuple):
  """The result of one run, as the user names it, with its sentences."""

  run: str
  result: results.Result
  sentences: list[dict[str, Any]]


def read(systems: Sequence[str], text: str, decoding: str = '') -> dict[str, list[ScoredRun]]:
  """Reads the result of each run of each system, for one text.

  A system is one or more runs, with commas between them; `decoding` has the settings for runs
  without their own.
  """
  if len(set(systems)) < len(systems):
    raise UserError('a system is named twice; name each once')
  members = [(system, run) for system in systems for run in system.split(',')]
  runs, candidates = zip(*(_results_of(run, text, decoding) for _, run in members), strict=True)
  users: dict[Path, str] = {}
  scored: dict[str, list[ScoredRun]] = {system: [] for system in systems}
  for (system, name), run, result in zip(
    members, runs, result_choice.choose(runs, candidates), strict=True
  ):
    if (other := users.setdefault(result.path.resolve(), name)) != name:
      raise UserError(
        f'systems, and the seeds of a system, must be different results; '
        f'{result.path} is that of {other} and of {name}; choose another by '
        f'RUN:SETTINGS'
      )
    scored[system].append(ScoredRun(run, result, result.read_sentences()))
  return scored


def _results_of(name: str, text: str, decoding: str) -> tuple[str, list[results.Result]]:
  """Returns a run, given as RUN or RUN:SETTINGS, and its results that fit text and settings."""
  run, colon, settings = name.rpartition(':')
  if not colon or files.as_path(name).is_dir():
    run, settings = name, ''
  workdir = files.as_path(run)
  folder = workdir / run_directory.EVALUATIONS
  if not any(folder.glob('*.step*.json')) and any(workdir.glob('*.step*.json')):
    folder = workdir  # A folder of eval.py's --results.
  everything = results.read_all(folder, text)
  settings = settings or decoding
  if 'best' in (parts := settings.split('.')) and everything:
    from transformer.runs.loading import open_checkpoints  # Imports JAX.

    trained = workdir if folder != workdir else everything[-1].content['workdir']
    parts[parts.index('best')] = f'step{open_checkpoints(Path(trained)).resolve("best")}'
    settings = '.'.join(parts)
  fitting = result_choice.matching(everything, settings)
  if not fitting:
    others = ', '.join(sorted(path.stem for path in folder.glob('*.step*.json'))) or 'nothing'
    wanted = f' of {shown(settings)}' if settings else ''
    raise UserError(
      f'{folder} should hold a result for {shown(text)}{wanted}; it holds {others}; '
      f'{spell_commands("score the run with eval.py")}, or name another by --text '
      f'and --decoding'
    )
  return run, fitting


def compare(
  systems: Mapping[str, Sequence[ScoredRun]], allow_unequal_decoding: bool = False
) -> dict[str, Any]:
  """Compares each system with the first, the baseline, by the metrics that all results have.

  Refuses systems that differ in the number of seeds, the text or BLEU's tokenizer, and those that
  differ in their decoding unless that is allowed. Returns JSON data.
  """
  names, everything = list(systems), [scored for seeds in systems.values() for scored in seeds]
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
    result_choice.check_decoded_alike(*zip(*(scored[:2] for scored in everything), strict=True))
  content = first.result.content
  # A metric of one's own may have been given for some runs only, or be computed in another way.
  everywhere = set.intersection(
    *(set(map(_computation, scored.result.content['metrics'])) for scored in everything)
  )
  signatures = {
    metric['name']: metric['signature']
    for metric in content['metrics']
    if _computation(metric) in everywhere
  }
  return {
    'text': content['text'],
    'sentences': len(first.sentences),
    'signatures': signatures,
    'resampling': seed_of_samples(),
    'systems': {
      name: {metric: _statistics(metric, seeds) for metric in signatures}
      for name, seeds in systems.items()
    },
    'results': {
      name: [
        {
          'run': run,
          'name': result.name,
          'steps': result.content['steps'],
          'seed': result.content['seed'],
          'decoding': result.decoding,
        }
        for run, result, _ in seeds
      ]
      for name, seeds in systems.items()
    },
    'differences': dict(
      zip(names[1:], _differences(list(systems.values()), signatures), strict=True)
    ),
  }


def _check_same_text(first: ScoredRun, other: ScoredRun):
  """Refuses results of other sources, references or tokenizers of BLEU."""
  texts = [
    [(sentence['source'], sentence['references']) for sentence in scored.sentences]
    for scored in (first, other)
  ]
  tokenizers = [scored.result.content['decode']['bleu_tokenize'] for scored in (first, other)]
  for what, (one, two) in {'sources or references': texts, 'bleu_tokenize': tokenizers}.items():
    if one != two:
      raise UserError(
        f'systems must be scored alike on one text; {first.run} and {other.run} differ in {what}'
      )


def _computation(metric: Mapping[str, Any]) -> tuple[str, str]:
  """Returns a metric's name, and its signature without the version of sacreBLEU."""
  return metric['name'], re.sub(r'\|version:[^|]*', '', metric['signature'])


def _statistics(metric: str, seeds: Sequence[ScoredRun]) -> dict[str, Any]:
  scores = [
    row['score']
    for scored in seeds
    for row in scored.result.content['metrics']
    if row['name'] == metric
  ]
  return {
    'seeds': scores,
    'mean': statistics.fmean(scores),
    'deviation': statistics.stdev(scores) if len(scores) > 1 else None,
  }


def _differences(
  systems: Sequence[Sequence[ScoredRun]], names: Sequence[str]
) -> list[list[dict[str, Any]]]:
  """Tests each system against the first by each metric, all seeds together.

  A test that fails is left out with a warning: scores are worth printing without it.
  """
  first, tested = systems[0][0], [[] for _ in systems[1:]]
  if 'mends' in first.result.content:  # It is of transformer.tools.parse.
    with optional('p of F1 is left out', logging.warning):
      from transformer.tools.parse import bracketing

      counts = [
        [
          bracketing.Counts(*sentence['brackets'])
          for scored in seeds
          for sentence in scored.sentences
        ]
        for seeds in systems
      ]
      return [bracketing.differences(counts[0], others) for others in counts[1:]]
    return tested
  tokenize = first.result.content['decode']['bleu_tokenize']
  references = list(zip(*(sentence['references'] for sentence in first.sentences), strict=True))
  lines = [
    [[sentence['translation'] for sentence in scored.sentences] for scored in seeds]
    for seeds in systems
  ]
  for metric in metrics.NAMES:
    if metric in names:
      with optional(f'p of {metric} is left out', logging.warning):
        differences = significance.differences(metric, lines[0], lines[1:], references, tokenize)
        for own, difference in zip(tested, differences, strict=True):
          own.append(difference)
  return tested


def as_table(compared: Mapping[str, Any]) -> list[str]:
  """Returns the lines of a table: systems, their scores, and the p of each difference."""
  signatures = compared['signatures']
  lines = [f'{compared["text"]}, {compared["sentences"]} sentences']
  lines += [f'{name}  {signature}' for name, signature in signatures.items()]
  width = max(map(len, [*compared['systems'], '  p, randomisation']))

  def row(label: str, cells: Sequence[str]) -> str:
    return f'{label:{width}}  {"".join(f"{cell:>16}" for cell in cells)}'.rstrip()

  lines += ['', row('', signatures)]
  for name, scores in compared['systems'].items():
    lines.append(
      row(
        name,
        [
          f'{score["mean"]:.2f}'
          + ('' if score['deviation'] is None else f' ± {score["deviation"]:.2f}')
          for score in scores.values()
        ],
      )
    )
    taken = compared['results'][name]
    lines += [
      f'  {seed["name"]}' + (f'   [{seed["run"]}]' if len(taken) > 1 else '') for seed in taken
    ]
    differences = {test['metric']: test for test in compared['differences'].get(name, ())}
    for kind in ('bootstrap', 'randomisation') if differences else ():
      # An own metric has a score and no test.
      lines.append(
        row(
          f'  p, {kind}',
          [
            f'{differences[metric][kind]:.4f}' if metric in differences else ''
            for metric in signatures
          ],
        )
      )
  return lines
