"""Comparison of systems by their scores on one text."""

import itertools
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from absl import logging

from transformer.errors import UserError, warn_on_error
from transformer.evaluation import metrics
from transformer.tools.compare import significance
from transformer.tools.compare.scored_runs import (
  ScoredRun,
  check_same_decoding,
  check_same_text,
)


def compare(
  systems: Mapping[str, Sequence[ScoredRun]], allow_unequal_decoding: bool = False
) -> dict[str, Any]:
  """Compares each system with the first, the baseline, by the metrics that all results have.

  Returns:
    JSON data:
    text, sentences: the name of the text, and its number of sentences.
    signatures: the signature of each metric, by name.
    systems: by name, for each system its `results`, its `scores` by metric, and `p`, the p-value of
      each metric's difference from the baseline.

  Raises:
    UserError: systems differ in the number of seeds, the text, BLEU's tokenizer, or in their
      decoding unless `allow_unequal_decoding`.
  """
  baseline = next(iter(systems))
  first = systems[baseline][0]
  for name, seeds in systems.items():
    if len(seeds) != len(systems[baseline]):
      raise UserError(
        f'systems must have the same number of seeds; {baseline} has {len(systems[baseline])}, '
        f'{name} has {len(seeds)}'
      )
    for scored in seeds:
      check_same_text(first, scored)
      if not allow_unequal_decoding:
        check_same_decoding(first, scored)
  signatures = _common_signatures(systems)
  compared = {}
  for name, seeds in systems.items():
    compared[name] = {
      'results': [_describe(scored) for scored in seeds],
      'scores': {metric: _statistics(metric, seeds) for metric in signatures},
      'p': {},
    }
  if len(systems) > 1:
    _add_p_values(compared, systems, signatures)
  return {
    'text': first.result.content['text'],
    'sentences': len(first.sentences),
    'signatures': signatures,
    'systems': compared,
  }


def _common_signatures(
  systems: Mapping[str, Sequence[ScoredRun]],
) -> dict[str, str]:
  """Returns the signatures, by name, of metrics that all results have with the same computation.

  Some runs may lack a custom metric, or compute it differently.
  """
  all_runs = list(itertools.chain(*systems.values()))
  common = _signatures(all_runs[0])
  for scored in all_runs:
    signatures = _signatures(scored)
    for name in list(common):
      computation = _computation(signatures.get(name, ''))
      if _computation(common[name]) != computation:
        del common[name]
  return common


def _signatures(scored: ScoredRun) -> dict[str, str]:
  rows = scored.result.content['metrics']
  return {row['name']: row['signature'] for row in rows}


def _computation(signature: str) -> str:
  """Returns a signature without the version of sacreBLEU."""
  return re.sub(r'\|version:[^|]*', '', signature)


def _describe(scored: ScoredRun) -> dict[str, Any]:
  """Returns data that identifies the result of a run."""
  content = scored.result.content
  return {
    'run': scored.run,
    'name': scored.result.name,
    'steps': content['steps'],
    'seed': content['seed'],
    'decoding': scored.result.decoding,
  }


def _statistics(metric: str, seeds: Sequence[ScoredRun]) -> dict[str, Any]:
  """Returns a metric's scores of all seeds, their mean and, with several seeds, deviation."""
  scores = []
  for scored in seeds:
    for row in scored.result.content['metrics']:
      if row['name'] == metric:
        scores.append(row['score'])
  return {
    'seeds': scores,
    'mean': statistics.fmean(scores),
    'deviation': statistics.stdev(scores) if len(scores) > 1 else None,
  }


def _add_p_values(
  compared: dict[str, dict[str, Any]],
  systems: Mapping[str, Sequence[ScoredRun]],
  names: Iterable[str],
):
  """Adds the p-values of each system versus the first, for sacreBLEU's metrics, all seeds together.

  If a test fails, its p-value is omitted with a warning: the scores are useful without it.
  """
  translations = []
  for seeds in systems.values():
    translations.append([scored.translations for scored in seeds])
  first = next(iter(systems.values()))[0]
  references = list(zip(*first.references, strict=True))
  for metric in names:
    if metric not in metrics.SACREBLEU_METRICS:
      continue
    with warn_on_error(f'p of {metric} is omitted', logging.warning):
      tested = significance.p_values(metric, translations, references, first.tokenizer)
      for name, p in zip(list(systems)[1:], tested, strict=True):
        compared[name]['p'][metric] = p


def as_table(compared: Mapping[str, Any]) -> list[str]:
  """Returns the lines of a table: systems, their scores, and the p-value of each difference."""
  signatures = compared['signatures']
  systems = compared['systems']
  lines = [f'{compared["text"]}, {compared["sentences"]} sentences']
  for name, signature in signatures.items():
    lines.append(f'{name}  {signature}')
  width = max(map(len, systems))
  lines.append('')
  lines.append(_row(' ' * width, signatures))
  for name, system in systems.items():
    means = [mean_and_deviation(score) for score in system['scores'].values()]
    lines.append(_row(f'{name:{width}}', means))
    for seed in system['results']:
      run = f'   [{seed["run"]}]' if len(system['results']) > 1 else ''
      lines.append(f'  {seed["name"]}{run}')
    if system['p']:
      # A custom metric has a score but no test.
      cells = []
      for metric in signatures:
        p = system['p'].get(metric)
        cells.append('' if p is None else f'{p:.4f}')
      lines.append(_row(f'{"  p":{width}}', cells))
  return lines


def _row(label: str, cells: Iterable[str]) -> str:
  """Returns a line of a table, with one column per metric."""
  columns = ''.join(f'{cell:>16}' for cell in cells)
  return f'{label}  {columns}'.rstrip()


def mean_and_deviation(score: Mapping[str, Any]) -> str:
  """Returns a mean as text, with the standard deviation if there are several seeds."""
  if score['deviation'] is None:
    return f'{score["mean"]:.2f}'
  return f'{score["mean"]:.2f} ± {score["deviation"]:.2f}'
