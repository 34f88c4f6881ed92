"""Links the words of sentences to those of their translations, and scores the links.

  python -m transformer.tools.align --workdir=RUN --source=FILE --reference=FILE2 --output=LINKS
  python -m transformer.tools.align --workdir=RUN --source=FILE --reference=FILE2 --gold=GOLD

The translations are those of --reference, such as the --output of eval.py. A line of links is `0-0
1-2 …`, a source and a target word each, from 0. --gold is a file of links that people drew; the
error rate is printed, and written to RUN/eval/ or to --results=FOLDER.
"""

from absl import flags

from transformer.commands import shared_flags
from transformer.commands.request import Request, check_output
from transformer.data.text.text_files import STANDARD_INPUT
from transformer.errors import refuse
from transformer.system import command_line
from transformer.tools.align import error_rate
from transformer.tools.align.links import alignment_lines, read_gold

_FLAGS = shared_flags.define(
  'workdir',
  'source',
  'reference',
  'results',
  'ensemble',
  'batch_size',
  'checkpoint',
  'average',
)
_OUTPUT = flags.DEFINE_string(
  'output', None, 'Where links go, or - for standard output.'
)
_GOLD = flags.DEFINE_string(
  'gold',
  None,
  'A file of links that people drew, with which those of '
  '--reference are compared: the alignment error rate.',
)
_LAYER = flags.DEFINE_integer(
  'layer',
  None,
  'The layer of the decoder whose attention links '
  'words, from 1 at the bottom; default: the mean of all layers.',
)


def main(_):
  """Wires flags to a run, and aligns."""
  request = _request()
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.commands.text_lines import write_lines
  from transformer.evaluation import report, results
  from transformer.tools.align.word_alignment import align, check_layer

  run = request.load()
  check_layer([member.model for member in run.members], _LAYER.value)
  (text,) = request.read_texts(run.config.data)
  targets = text.references[0]
  if _GOLD.value:
    gold = read_gold(_GOLD.value, text.sources, targets)
    settings = {'layer': str(_LAYER.value)} if _LAYER.value else {}
    content = results.facts(text, run.members, **settings)
    result = results.place(request.results_folder, content, 'alignment')
  links = align(run.members, text.sources, targets, _LAYER.value)
  if _OUTPUT.value:
    write_lines(alignment_lines(links), _OUTPUT.value)
  if _GOLD.value:
    scores = error_rate.evaluate(text.sources, targets, gold, links)
    report.report(result, [scores], request.people, error_rate.more_lines)


def _request() -> Request:
  """Returns the request; refuses flags that exclude or need each other."""
  request = Request(**shared_flags.given(*_FLAGS), output=_OUTPUT.value)
  refuse(
    (not request.source, '--source=FILE is needed'),
    (len(request.reference) != 1, '--reference=FILE is needed, a file of translations'),
    (
      not (_OUTPUT.value or _GOLD.value),
      '--output=FILE is needed, where links go, or --gold=FILE, with which they are compared',
    ),
    (
      _GOLD.value == STANDARD_INPUT,
      '--gold must name a file; standard input is for --source',
    ),
    (
      request.results and not _GOLD.value,
      '--results is for error rates; add --gold=FILE',
    ),
  )
  check_output(request.output, [_GOLD.value])
  return request


start = command_line.starter(main)  # `attention-align` calls it.

if __name__ == '__main__':
  start()
