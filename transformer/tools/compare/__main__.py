"""Compares the scores of systems, with tests whether they differ significantly.

  python -m transformer.tools.compare --text=test RUN_A RUN_B [RUN_C …]
  python -m transformer.tools.compare --text=test A1,A2,A3 B1,B2,B3    # three seeds each
  python -m transformer.tools.compare runs/a/eval/test.step600.beam4.alpha0.6.json \\
      runs/a/eval/test.step600.beam1.alpha0.6.json --allow_unequal_decoding

A system is one run, or several runs with different seeds and commas between them. A run is its
directory or a folder of eval.py's --results; if it has several results of the text, the command
takes the decoding that all runs have. The JSON file of a result stands for a run, too. The first
system is the baseline. eval.py must have scored all runs on the same text with the same decoding.

p is the probability of an equally large difference by chance, by paired bootstrap resampling and
by approximate randomisation.
"""

import itertools
from collections.abc import Sequence

from absl import flags

from transformer import files
from transformer.commands import shared_flags
from transformer.commands.request import check_output
from transformer.errors import UserError
from transformer.system import command_line, outputs
from transformer.tools.compare import comparison

_TEXT = flags.DEFINE_string(
  'text', 'test', 'The split, or the name of another text as its result files begin.'
)
_UNEQUAL = flags.DEFINE_bool(
  'allow_unequal_decoding', False, 'Compare systems with different decoding.'
)
_EXAMPLES = flags.DEFINE_integer(
  'examples',
  5,
  'Sentences to show; those whose chrF2++ differs most come first.',
)
_OUTPUT = flags.DEFINE_string('output', None, 'A JSON file for the comparison.')


def main(arguments: Sequence[str]):
  """Compares the systems of the command line, and prints tables and examples."""
  if len(arguments) < 3:
    raise UserError(
      'two systems or more are needed, each a run, or runs with commas between them'
    )
  shared_flags.check_at_least(0, _EXAMPLES)
  systems = comparison.read(arguments[1:], _TEXT.value)
  read = [scored.result for scored in itertools.chain(*systems.values())]
  check_output(_OUTPUT.value, [result.path for result in read])
  check_output(_OUTPUT.value, [result.sentences_path for result in read])
  compared = comparison.compare(systems, _UNEQUAL.value)
  print(*comparison.as_table(compared), sep='\n')
  if _OUTPUT.value:
    outputs.write(files.as_path(_OUTPUT.value), files.as_json(compared))
    print(f'also in {_OUTPUT.value}')
  # Results lack chrF2++ if it could not be computed.
  metric = next(filter(compared['signatures'].get, ('chrF2++', 'BLEU')), None)
  for name in arguments[2:] if metric else ():
    _show_examples(arguments[1], name, systems, metric)


def _show_examples(baseline: str, name: str, systems, metric: str):
  """Prints the sentences whose scores differ most, by the first seed of each system."""
  ours = systems[baseline][0].sentences
  theirs = systems[name][0].sentences
  differing = []
  for one, two in zip(ours, theirs, strict=True):
    if one['translation'] != two['translation']:
      differing.append((one, two))
  differing.sort(key=lambda pair: abs(pair[1][metric] - pair[0][metric]), reverse=True)
  for one, two in differing[: _EXAMPLES.value]:
    print(f'\nsource     {one["source"]}\nreference  {one["references"][0]}')
    for label, sentence in ((baseline, one), (name, two)):
      print(f'{sentence[metric]:9.1f}  {sentence["translation"]}   [{label}]')


start = command_line.starter(
  main, takes_arguments=True
)  # `attention-compare` calls it.

if __name__ == '__main__':
  start()
