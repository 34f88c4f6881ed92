"""Compares the scores of systems, with significance tests.

  python -m transformer.tools.compare --split=test RUN_A RUN_B [RUN_C …]
  python -m transformer.tools.compare --split=test A1,A2,A3 B1,B2,B3    # three seeds each
  python -m transformer.tools.compare --split=test A1,A2,A3             # mean and deviation
  python -m transformer.tools.compare --format=latex RUN_A RUN_B       # or markdown, csv
  python -m transformer.tools.compare --settings RUN_A RUN_B           # or config files
  python -m transformer.tools.compare runs/a/eval/test.step600.beam4.alpha0.6.json \\
      runs/a/eval/test.step600.beam1.alpha0.6.json --allow_unequal_decoding

A system is one run, or several comma-separated runs with different seeds. A run is given by its
directory or a folder of eval.py's --results; if it has several results for the text, give the JSON
file of one result instead. The first system is the baseline. All runs must be scored by eval.py on
the same text with the same decoding options.

p is the p-value of the difference from the baseline, by paired bootstrap resampling.
"""

from collections.abc import Sequence

from absl import flags

from transformer import files
from transformer.cli import shared_flags
from transformer.cli.request import check_output
from transformer.errors import UserError
from transformer.system import command_line, outputs
from transformer.tools.compare import comparison, config_diff, scored_runs
from transformer.tools.compare.formats import FORMATS, format_comparison
from transformer.tools.compare.scored_runs import ScoredRun

_SPLIT = flags.DEFINE_string(
  'split', 'test', 'The split to compare, or the prefix of its result files.'
)
_UNEQUAL = flags.DEFINE_bool(
  'allow_unequal_decoding', False, 'Compare systems with different decoding.'
)
_EXAMPLES = flags.DEFINE_integer(
  'examples',
  5,
  'Sentences to show; those whose chrF2++ differs most come first.',
)
_FORMAT = flags.DEFINE_enum(
  'format', 'text', FORMATS, 'Print a table for a paper or a spreadsheet instead.'
)
_SETTINGS = flags.DEFINE_bool(
  'settings', False, 'Compare the settings of two configs or runs instead of scores.'
)
_OUTPUT = flags.DEFINE_string('output', None, 'A JSON file for the comparison.')


def main(arguments: Sequence[str]):
  """Compares the systems given by the command line, and prints tables and examples."""
  if _SETTINGS.value:
    if len(arguments) != 3:
      raise UserError('--settings compares two configs or runs; pass two')
    lines = config_diff.differences(*arguments[1:])
    print(*lines or ['all settings are equal'], sep='\n')
    return
  if len(arguments) < 3 and ',' not in ''.join(arguments[1:]):
    raise UserError(
      'too few runs; pass two systems or more, each a run or comma-separated runs, or one '
      'system of several runs'
    )
  shared_flags.check_at_least(0, _EXAMPLES)
  systems = scored_runs.read(arguments[1:], _SPLIT.value)
  inputs = []
  for seeds in systems.values():
    for scored in seeds:
      inputs += [scored.result.path, scored.result.sentences_path]
  check_output(_OUTPUT.value, inputs)
  compared = comparison.compare(systems, _UNEQUAL.value)
  if _OUTPUT.value:
    outputs.write(files.as_path(_OUTPUT.value), files.json_bytes(compared))
  if _FORMAT.value != 'text':  # Only the table, to redirect it to a file.
    print(format_comparison(compared, _FORMAT.value))
    return
  print(*comparison.as_table(compared), sep='\n')
  if _OUTPUT.value:
    print(f'also in {_OUTPUT.value}')
  for name in arguments[2:]:
    _show_examples(systems[arguments[1]][0], systems[name][0])


def _show_examples(baseline: ScoredRun, other: ScoredRun):
  """Prints the sentences with the largest differences in chrF2++."""
  differing = []
  for one, two in zip(baseline.sentences, other.sentences, strict=True):
    if one['translation'] != two['translation']:
      difference = abs(two['chrF2++'] - one['chrF2++'])
      differing.append((difference, one, two))
  differing.sort(key=lambda row: row[0], reverse=True)
  for _, one, two in differing[: _EXAMPLES.value]:
    print(f'\nsource     {one["source"]}\nreference  {one["references"][0]}')
    for run, sentence in ((baseline.run, one), (other.run, two)):
      print(f'{sentence["chrF2++"]:9.1f}  {sentence["translation"]}   [{run}]')


# `attention-compare` calls it.
start = command_line.entry_point(main, takes_arguments=True)

if __name__ == '__main__':
  start()
