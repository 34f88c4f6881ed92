"""Parses sentences with a run that was trained on trees.

  python -m transformer.tools.parse --workdir=RUN --source=words.txt    # one sentence per line
  python -m transformer.tools.parse --workdir=RUN --source=words.txt --output=FILE

Words are separated by spaces, as in the treebank. Trees are written with their words, in Penn
Treebank brackets, one per line. Flags of eval.py have the same meaning here. To score a run, use
eval.py:

  python eval.py --workdir=RUN --metric=transformer.tools.parse.scores:evalb
"""

from transformer.cli import shared_flags
from transformer.cli.request import Request
from transformer.data.text.text_files import read_lines
from transformer.errors import UserError
from transformer.system import command_line
from transformer.tools.parse.linearization import delinearize
from transformer.tools.parse.treebank import bracketed, split_words

_FLAGS = shared_flags.define(
  'workdir',
  'source',
  'output',
  'ensemble',
  'checkpoint',
  'average',
  'batch_size',
  'beam_size',
  'alpha',
)


def main(_):
  """Reads the flags, loads a run, and writes trees."""
  request = Request.from_flags(_FLAGS)
  if not request.source:
    raise UserError(
      '--source is missing; pass the sentences to parse: --source=FILE; for scores of a split: '
      'eval.py --metric=transformer.tools.parse.scores:evalb'
    )
  # Import JAX only now, so that --help and invalid flags respond immediately.
  from transformer.cli.text_lines import write_lines

  run = request.load()
  if not run.config.data.source.startswith(f'{__package__}.'):
    raise UserError(
      f'{request.workdir} must be trained on trees, as with configs/parsing.py; it has '
      f'data.source={run.config.data.source}'
    )
  sentences = read_lines(request.source)
  translations = run.translations(sentences, request.decode_options(run.config))
  trees = []
  for sentence, translation in zip(sentences, translations, strict=True):
    trees.append(bracketed(delinearize(translation.text, split_words(sentence))))
  write_lines(trees, request.output or '-')


start = command_line.entry_point(main)  # `attention-parse` calls it.

if __name__ == '__main__':
  start()
