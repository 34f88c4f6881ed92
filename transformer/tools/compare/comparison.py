"""Comparison of systems by their scores on one text."""

import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from transformer.errors import UserError, optional
from transformer.evaluation import result_files
from transformer.runs import run_directory
from transformer.system.installation import spell_commands
from transformer.tools.compare import result_choice


class ScoredRun(NamedTuple):
  """The result of one run, with its sentences.

  Attributes:
    result: the scores of the text.
    sentences: the source, references, translation and scores of each sentence.
  """

  result: result_files.Result
  sentences: list[dict[str, Any]]


def read(systems: Sequence[str], text: str, decoding: str = '') -> dict[str, list[ScoredRun]]:
  """Reads the result of each run for one text.

  Args:
    systems: each system as one or more runs, with commas between them; a run is its directory,
      or `RUN:SETTINGS` with settings of the result, as `result_choice.matching` takes them.
    text: the name of the text in the names of the results.
    decoding: settings of the result, for runs without their own.

  Returns:
    For each system the results of its runs.

  Raises:
    UserError: a run has no such result, or several, a result cannot be read, or a result is
      chosen twice.
  """
  if len(set(systems)) < len(systems):
    raise UserError('a system is named twice; name each once')
  runs = [(system, run) for system in systems for run in run_directory.split_runs(system)]
  chosen = result_choice.choose([_results_of(run, text, decoding) for _, run in runs])
  users: dict[Path, str] = {}
  for (_, run), result in zip(runs, chosen, strict=True):
    path = result.path.resolve()
    if path in users:
      raise UserError(f'systems, and the seeds of a system, must be different results; '
                      f'{result.path} is that of {users[path]} and of {run}; choose another by '
                      f'RUN:SETTINGS')
    users[path] = run
  seeds: dict[str, list[ScoredRun]] = {system: [] for system in systems}
  for (system, _), result in zip(runs, chosen, strict=True):
    seeds[system].append(ScoredRun(result, result_files.read_sentences(result)))
  return seeds


def _results_of(name: str, text: str, decoding: str) -> list[result_files.Result]:
  """Returns the results of a run, given as RUN or RUN:SETTINGS, that fit text and settings."""
  run, colon, settings = name.rpartition(':')
  if not colon or Path(name).expanduser().is_dir():
    run, settings = name, ''
  workdir = Path(run).expanduser()
  folder = workdir / run_directory.EVALUATIONS
  if not any(folder.glob('*.step*.json')) and any(workdir.glob('*.step*.json')):
    folder = workdir  # A folder of eval.py's --results.
  everything = result_files.read_all(folder, run, text)
  settings = settings or decoding
  if 'best' in (parts := settings.split('.')) and everything:
    from transformer.runs.loading import step_of  # Imports JAX.
    trained = workdir if folder != workdir else everything[-1].content['workdir']
    parts[parts.index('best')] = f'step{step_of(trained, "best")}'
    settings = '.'.join(parts)
  found = result_choice.matching(everything, settings)
  if not found:
    others = ', '.join(sorted(path.stem for path in folder.glob('*.step*.json'))) or 'nothing'
    wanted = f' of {settings!r}' if settings else ''
    raise UserError(f'{folder} should hold a result for {text!r}{wanted}; it holds {others}; '
                    f'{spell_commands("score the run with eval.py")}, or name another by --text '
                    f'and --decoding')
  return found


def compare(systems: dict[str, Sequence[ScoredRun]],
            allow_unequal_decoding: bool = False) -> dict[str, Any]:
  """Compares each system with the first by all metrics.

  Args:
    systems: the results of each system, one for each seed; the first system is the baseline.
    allow_unequal_decoding: whether systems may differ in their decoding.

  Returns:
    JSON data with these keys:
      text, sentences: the name of the text and the number of its sentences.
      signatures: the signature of each metric that all results have, sacreBLEU's for translations.
      systems: for each system and metric the scores of its seeds, their mean and their
        standard deviation, all in percent.
      results: for each system and seed the run, the checkpoints and the decoding.
      differences: for each system but the first the fields of `significance.Difference` by metric.

  Raises:
    UserError: systems differ in the number of seeds, the text, the tokenizer of BLEU or the
      decoding.
  """
  baseline, *others = systems
  first = systems[baseline][0]
  for name, seeds in systems.items():
    if len(seeds) != len(systems[baseline]):
      raise UserError(f'systems must have as many seeds as each other; {baseline} has '
                      f'{len(systems[baseline])}, {name} has {len(seeds)}')
    for scored in seeds:
      _check_same_text(first, scored)
  if not allow_unequal_decoding:
    result_choice.check_decoded_alike([each.result for seeds in systems.values() for each in seeds])
  content = first.result.content
  # A metric of one's own may have been given for some runs only, or be computed in another way.
  everywhere = set.intersection(*(
      set(map(_computation, scored.result.content['metrics']))
      for seeds in systems.values() for scored in seeds))
  signatures = {each['name']: each['signature'] for each in content['metrics']
                if _computation(each) in everywhere}
  return {
      'text': content['text'], 'sentences': len(first.sentences), 'signatures': signatures,
      'systems': {name: {metric: _statistics([_scores(scored)[metric] for scored in seeds])
                         for metric in signatures} for name, seeds in systems.items()},
      'results': {name: [{'run': each.result.run, 'name': each.result.name,
                          'steps': each.result.content['steps'],
                          'seed': each.result.content['seed'], 'decoding': each.result.decoding}
                         for each in seeds] for name, seeds in systems.items()},
      'differences': _differences(systems[baseline], {name: systems[name] for name in others},
                                  signatures)}


def _differences(baseline: Sequence[ScoredRun], systems: Mapping[str, Sequence[ScoredRun]],
                 signatures: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
  """Tests each system against the baseline by each metric, all seeds together.

  A test that fails is left out with a warning: scores are worth printing without it.
  """
  tested: dict[str, list[dict[str, Any]]] = {name: [] for name in systems}
  if 'mends' in baseline[0].result.content:  # It is of transformer.tools.parse.
    with optional('p of F1 is left out', logging.warning):
      from transformer.tools.parse import bracketing
      counts = {name: [bracketing.Counts(*sentence['brackets']) for scored in seeds
                       for sentence in scored.sentences]
                for name, seeds in {'': baseline, **systems}.items()}
      return {name: bracketing.differences(counts[''], counts[name]) for name in systems}
    return tested
  from transformer.evaluation import metrics  # Imported here: errors come sooner.
  from transformer.tools.compare import significance
  tokenize = baseline[0].result.content['decode']['bleu_tokenize']
  references = list(zip(*(each['references'] for each in baseline[0].sentences), strict=True))
  ours, *theirs = ([[each['translation'] for each in scored.sentences] for scored in seeds]
                   for seeds in (baseline, *systems.values()))
  for metric in metrics.NAMES:
    if metric not in signatures:
      continue
    with optional(f'p of {metric} is left out', logging.warning):
      if metric == 'BLEU':
        metrics.check_tokenizer(tokenize)
      differences = significance.differences(metric, ours, theirs, references, tokenize)
      for name, difference in zip(systems, differences, strict=True):
        tested[name].append(difference._asdict())
  return tested


def as_table(found: dict[str, Any]) -> list[str]:
  """Returns the lines of a table: systems, their scores, and the p of each difference."""
  lines = [f'{found["text"]}, {found["sentences"]} sentences']
  lines += [f'{name}  {signature}' for name, signature in found['signatures'].items()]
  tests = {'bootstrap': '  p, bootstrap', 'randomisation': '  p, randomisation'}
  width = max(map(len, [*found['systems'], *tests.values()]))
  lines.append(f'\n{"":{width}}  ' + ''.join(f'{name:>16}' for name in found['signatures']))
  for name, scores in found['systems'].items():
    lines.append(f'{name:{width}}  '
                 + ''.join(f'{_with_spread(each):>16}' for each in scores.values()))
    taken = found['results'][name]
    lines += [f'  {each["name"]}' + f'   [{each["run"]}]' * (len(taken) > 1) for each in taken]
    differences = {each['metric']: each for each in found['differences'].get(name, ())}
    for kind, label in tests.items() if differences else ():
      # An own metric has a score and no test.
      lines.append((f'{label:{width}}  ' + ''.join(
          f'{differences[metric][kind]:16.4f}' if metric in differences else f'{"":16}'
          for metric in found['signatures'])).rstrip())
  return lines


def _with_spread(scores: dict[str, Any]) -> str:
  spread = f' ± {scores["deviation"]:.2f}' if len(scores['seeds']) > 1 else ''
  return f'{scores["mean"]:.2f}{spread}'


def _computation(metric: dict[str, Any]) -> tuple[str, str]:
  """Returns the name of a metric and its signature without the version of sacreBLEU."""
  return metric['name'], re.sub(r'\|version:[^|]*', '', metric['signature'])


def _scores(scored: ScoredRun) -> dict[str, float]:
  return {each['name']: each['score'] for each in scored.result.content['metrics']}


def _statistics(scores: list[float]) -> dict[str, Any]:
  """Returns scores of seeds with their mean and the standard deviation of a sample."""
  return {'seeds': scores, 'mean': statistics.fmean(scores),
          'deviation': statistics.stdev(scores) if len(scores) > 1 else None}


def _check_same_text(first: ScoredRun, other: ScoredRun):
  """Checks that two results have the same sources, references and tokenizer of BLEU."""
  runs = first.result.run, other.result.run
  counts = len(first.sentences), len(other.sentences)
  if counts[0] != counts[1]:
    raise UserError(f'systems must be scored on one text; {runs[0]} has {counts[0]} sentences, '
                    f'{runs[1]} has {counts[1]}')
  for number, (one, two) in enumerate(zip(first.sentences, other.sentences, strict=True), 1):
    if (one['source'], one['references']) != (two['source'], two['references']):
      raise UserError(f'systems must be scored on one text; sentence {number} of {runs[0]} and of '
                      f'{runs[1]} differ in source or reference')
  wanted, found = (each.result.content['decode']['bleu_tokenize'] for each in (first, other))
  if wanted != found:
    raise UserError(f'systems must be scored alike; {runs[0]} has bleu_tokenize={wanted}, '
                    f'{runs[1]} has {found}')
