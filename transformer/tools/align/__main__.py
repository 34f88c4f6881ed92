"""Aligns the words of sentences with the words of their translations.

  python -m transformer.tools.align --workdir=RUN --source=FILE --reference=FILE2 --output=LINKS

The translations are the lines of --reference, such as the --output of eval.py. A line of the output
is `0-0 1-2 …`: each link is a source and a target word, counted from 0.
"""

from absl import flags

from transformer.cli import shared_flags
from transformer.cli.request import Request
from transformer.errors import UserError
from transformer.system import command_line
from transformer.tools.align.links import alignment_lines

_FLAGS = shared_flags.define(
  'workdir',
  'source',
  'reference',
  'checkpoint',
  'average',
)
_OUTPUT = flags.DEFINE_string(
  'output', None, 'The file for links, or - for standard output.'
)
_LAYER = flags.DEFINE_integer(
  'layer',
  None,
  'The layer of the decoder whose attention links '
  'words, from 1 at the bottom (default: the mean of all layers).',
)


def main(_):
  """Aligns the texts given by flags."""
  request = Request.from_flags(_FLAGS, output=_OUTPUT.value or '')
  if not request.source:
    raise UserError('--source is missing; pass --source=FILE')
  if len(request.reference) != 1:
    raise UserError(
      '--reference is missing; pass a file of translations: --reference=FILE'
    )
  if not _OUTPUT.value:
    raise UserError('--output is missing; pass the file for links: --output=FILE')
  # Import JAX only now, so that --help and invalid flags respond immediately.
  from transformer.cli.text_lines import write_lines
  from transformer.tools.align.word_alignment import align, check_layer

  run = request.load()
  check_layer(run, _LAYER.value)
  (eval_set,) = request.read_eval_sets(run.config.data)
  links = align(run, eval_set.sources, eval_set.references[0], _LAYER.value)
  write_lines(alignment_lines(links), _OUTPUT.value)


start = command_line.entry_point(main)  # `attention-align` calls it.

if __name__ == '__main__':
  start()
