"""Holds the scores of systems against each other, with tests of whether they differ.

  python -m transformer.inference.compare --text=test RUN_A RUN_B [RUN_C …]
  python -m transformer.inference.compare --text=test A1,A2,A3 B1,B2,B3    # three seeds each
  python -m transformer.inference.compare RUN:beam4 RUN:beam1 --allow_unequal_decoding

A system is a run, or several that differ in their seeds, with commas between them; the folder of
eval.py's --results may stand for a run. The first is the baseline. Each must have been scored by
eval.py on the same text, and decoded alike. Of several results of a run the one counts whose
decoding all runs have; --decoding names another, such as beam4.alpha0.6, and RUN:PART the one of
this run whose name has the part, such as RUN:step600. p is the likelihood of a difference as large
by chance, by paired bootstrap resampling and by approximate randomisation; below 0.05 it is usually
called significant. --output=FILE takes the same as JSON.
"""

import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from transformer import command_line, files
from transformer.errors import UserError
from transformer.inference import results
from transformer.training import run_directory

_TEXT = flags.DEFINE_string('text', 'test', 'The split, or the text, as its results are named.')
_DECODING = flags.DEFINE_string('decoding', '', 'A part of the name of the result, if a run has '
                                'several.')
_UNEQUAL = flags.DEFINE_bool('allow_unequal_decoding', False, 'Compare systems that were decoded '
                             'in different ways.')
_EXAMPLES = flags.DEFINE_integer('examples', 5, 'How many of the sentences that differ most to '
                                 'show.')
_OUTPUT = flags.DEFINE_string('output', None, 'A JSON file for what is found.')


class Scored(NamedTuple):
  """A run's result, with its sentences.

  Attributes:
    result: what eval.py wrote of the text.
    sentences: and of each of its sentences.
  """

  result: results.Result
  sentences: list[dict[str, Any]]

  @property
  def translations(self) -> list[str]:
    """One a sentence."""
    return [each['translation'] for each in self.sentences]


def main(arguments: Sequence[str]):
  """Wires flags to a comparison."""
  if len(arguments) < 3:
    raise UserError('two systems or more are needed, each a run, or runs with commas between them')
  command_line.check_at_least(0, _EXAMPLES)
  command_line.check_named(_OUTPUT)
  if _OUTPUT.value:
    command_line.check_file('output', Path(_OUTPUT.value).expanduser())
  if len(set(arguments[1:])) < len(arguments) - 1:
    raise UserError('a system is named twice; name each once')
  systems = read(arguments[1:], _TEXT.value, _DECODING.value)
  if _OUTPUT.value:
    command_line.check_not_read('output', Path(_OUTPUT.value).expanduser(), [
        each for seeds in systems.values() for scored in seeds for each in scored.result.files])
  found = compare(systems, _UNEQUAL.value)
  for line in in_words(found):
    print(line)
  names = list(systems)
  for name in names[1:]:
    _show_examples(names[0], name, systems)
  if _OUTPUT.value:
    files.write_json(Path(_OUTPUT.value).expanduser(), found)
    print(f'also in {_OUTPUT.value}')


def read(systems: Sequence[str], text: str, decoding: str = '') -> dict[str, list[Scored]]:
  """Reads the result of each run of each system for a text.

  Args:
    systems: runs, each as RUN or RUN:PART, with commas between those of one system.
    text: as eval.py names it.
    decoding: a part of the names of the results.

  Returns:
    The results of each system's seeds, by its name.

  Raises:
    UserError: a run has no such result, or several.
  """
  runs = {name: name.split(',') for name in systems}
  chosen = iter(results.choose([_results_of(each, text, decoding) for each in
                                itertools.chain.from_iterable(runs.values())]))
  return {name: [Scored(result, results.read_sentences(result))
                 for result in itertools.islice(chosen, len(seeds))]
          for name, seeds in runs.items()}


def _results_of(name: str, text: str, decoding: str) -> list[results.Result]:
  """All results of a run, named as RUN or RUN:PART, that may be meant."""
  run, colon, part = name.rpartition(':')
  if not colon or Path(name).expanduser().is_dir():
    run, part = name, ''
  workdir = Path(run).expanduser()
  folder = workdir / run_directory.EVALUATIONS
  if not folder.is_dir() and any(workdir.glob('*.step*.json')):
    folder = workdir  # The --results of eval.py.
  found = results.matching(results.find(folder, run, text), part or decoding)
  if not found:
    others = ', '.join(sorted(path.stem for path in folder.glob('*.step*.json'))) or 'nothing'
    raise UserError(f'{folder} should hold a result for {text!r}'
                    f'{f" of {part or decoding!r}" if part or decoding else ""}; it holds {others};'
                    f' score the run with eval.py, or name another by --text and --decoding')
  return found


def compare(systems: dict[str, Sequence[Scored]],
            allow_unequal_decoding: bool = False) -> dict[str, Any]:
  """Scores of each system over its seeds, and how all but the first differ from that.

  Args:
    systems: the seeds of each by its name, as many of each; the first is the baseline.
    allow_unequal_decoding: whether they may have been decoded in different ways.

  Returns:
    JSON data: `systems`, the `results` that were taken of each, and `differences` in the
    order of the systems.

  Raises:
    UserError: systems have other numbers of seeds, or were decoded in different ways, or
      scored on other texts or in another way.
  """
  from transformer.inference.metrics import differences  # A mistake needs no sacreBLEU.
  baseline, *others = systems
  first = systems[baseline][0]
  for name, seeds in systems.items():
    if len(seeds) != len(systems[baseline]):
      raise UserError(f'systems must have as many seeds as each other; {baseline} has '
                      f'{len(systems[baseline])}, {name} has {len(seeds)}')
    for scored in seeds:
      _check_same_text(first, scored)
  if not allow_unequal_decoding:
    results.check_decoded_alike([each.result for seeds in systems.values() for each in seeds])
  references = list(zip(*(each['references'] for each in first.sentences), strict=True))
  tokenize = first.result.content['decode']['bleu_tokenize']
  return {
      'text': first.result.content['text'], 'sentences': len(first.sentences),
      'signatures': {each['name']: each['signature'] for each in first.result.content['metrics']},
      'systems': {name: {metric: _spread([_scores(scored)[metric] for scored in seeds])
                         for metric in _scores(first)} for name, seeds in systems.items()},
      'results': {name: [{'run': each.result.run, 'name': each.result.name,
                          'steps': each.result.content['steps'],
                          'seed': each.result.content['seed'], 'decoding': each.result.decoding}
                         for each in seeds] for name, seeds in systems.items()},
      'differences': {name: [each._asdict() for each in differences(
          [scored.translations for scored in systems[baseline]],
          [scored.translations for scored in systems[name]], references, tokenize)]
                      for name in others}}


def in_words(found: dict[str, Any]) -> list[str]:
  """A table of systems, their scores, and the p of each difference."""
  lines = [f'{found["text"]}, {found["sentences"]} sentences']
  lines += [f'{name}  {signature}' for name, signature in found['signatures'].items()]
  tests = {'bootstrap': '  p, bootstrap', 'randomisation': '  p, randomisation'}
  width = max(map(len, [*found['systems'], *tests.values()]))
  lines.append(f'\n{"":{width}}  ' + ''.join(f'{name:>16}' for name in found['signatures']))
  for name, scores in found['systems'].items():
    lines.append(f'{name:{width}}  '
                 + ''.join(f'{_in_words(each):>16}' for each in scores.values()))
    taken = found['results'][name]
    lines += [f'  {each["name"]}' + f'   [{each["run"]}]' * (len(taken) > 1) for each in taken]
    for kind, label in tests.items() if name in found['differences'] else ():
      lines.append(f'{label:{width}}  ' + ''.join(
          f'{each[kind]:16.4f}' for each in found['differences'][name]))
  return lines


def _in_words(scores: dict[str, Any]) -> str:
  spread = f' ± {scores["deviation"]:.2f}' if len(scores['seeds']) > 1 else ''
  return f'{scores["mean"]:.2f}{spread}'


def _scores(scored: Scored) -> dict[str, float]:
  return {each['name']: each['score'] for each in scored.result.content['metrics']}


def _spread(scores: list[float]) -> dict[str, Any]:
  """Over seeds: the standard deviation is of a sample."""
  return {'seeds': scores, 'mean': statistics.fmean(scores),
          'deviation': statistics.stdev(scores) if len(scores) > 1 else None}


def _check_same_text(first: Scored, other: Scored):
  """Refuses what cannot be compared."""
  runs = first.result.run, other.result.run
  counts = len(first.sentences), len(other.sentences)
  if counts[0] != counts[1]:
    raise UserError(f'systems must be scored on one text; {runs[0]} has {counts[0]} sentences, '
                    f'{runs[1]} has {counts[1]}')
  for number, (one, two) in enumerate(zip(first.sentences, other.sentences, strict=True), 1):
    if (one['source'], one['references']) != (two['source'], two['references']):
      raise UserError(f'systems must be scored on one text; sentence {number} of {runs[0]} and of '
                      f'{runs[1]} have another source or reference')
  asked, found = (each.result.content['decode']['bleu_tokenize'] for each in (first, other))
  if asked != found:
    raise UserError(f'systems must be scored alike; {runs[0]} has bleu_tokenize={asked}, '
                    f'{runs[1]} has {found}')


def _show_examples(baseline: str, name: str, systems: dict[str, Sequence[Scored]]):
  """Prints the sentences whose chrF2++ differs most between the first seeds."""
  pairs = zip(systems[baseline][0].sentences, systems[name][0].sentences, strict=True)
  differing = [pair for pair in pairs if pair[0]['translation'] != pair[1]['translation']]
  differing.sort(key=lambda pair: -abs(pair[1]['chrF2++'] - pair[0]['chrF2++']))
  for one, two in itertools.islice(differing, _EXAMPLES.value):
    print(f'\nsource     {one["source"]}\nreference  {one["references"][0]}')
    for label, each in ((baseline, one), (name, two)):
      print(f'{each["chrF2++"]:9.1f}  {each["translation"]}   [{label}]')


if __name__ == '__main__':
  command_line.run(main, takes_arguments=True)
