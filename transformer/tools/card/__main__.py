r"""Writes the model card and the report of a run, for the hub and for people.

  python -m transformer.tools.card RUN
  python -m transformer.tools.card RUN --license=mit --output=FOLDER

RUN/README.md has Hugging Face's metadata, the scores, the data with their digests, the versions,
the operations and the limits. RUN/report.html is one page with curves, examples with attention,
settings and provenance. A file that you have edited is kept, unless --overwrite is given.
"""

from absl import flags, logging

from transformer import files
from transformer.errors import UserError, optional
from transformer.settings import check_range
from transformer.system import command_line, outputs
from transformer.system.installation import spell_commands

_OUTPUT = flags.DEFINE_string('output', None, 'The folder to write into; default: RUN.')
_LICENSE = flags.DEFINE_string(
  'license',
  None,
  'The licence of the model, an id of Hugging Face; default: a line to fill in.',
)
_EXAMPLES = flags.DEFINE_integer(
  'examples', 3, 'The number of sentences in the report.'
)
_OVERWRITE = flags.DEFINE_bool(
  'overwrite', False, 'Replace files that were edited, too.'
)


def main(argv):
  """Writes the card and the report of the run of the command line."""
  if len(argv) != 2:
    raise UserError(
      spell_commands('give one run: python -m transformer.tools.card RUN')
    )
  check_range('--examples', _EXAMPLES.value, least=0)
  from transformer.tools.card import edited_files, model_card, report, run_facts

  if _LICENSE.value is not None:
    model_card.check_licence(_LICENSE.value)
  workdir = files.as_path(argv[1])
  folder = workdir if _OUTPUT.value is None else files.as_path(_OUTPUT.value)
  facts = run_facts.read_facts(workdir)
  for name in (model_card.CARD, model_card.REPORT):
    outputs.check_file('output', folder / name)
  run = None
  with optional('there is no checkpoint to load', logging.warning):
    from transformer import (
      load,
    )  # JAX is imported only now, so that a mistake answers at once.

    run = load(workdir)
    facts = facts._replace(steps=run.steps)
  texts = {
    model_card.CARD: model_card.card_text(facts, _LICENSE.value or ''),
    model_card.REPORT: report.report_text(facts, run, _EXAMPLES.value),
  }
  for name, text in texts.items():
    path = folder / name
    if edited_files.write(path, text, _OVERWRITE.value):
      print(f'wrote {path}')
    else:
      logging.warning('%s was edited, so it is kept; --overwrite replaces it', path)


start = command_line.starter(main, takes_arguments=True)  # `attention-card` calls it.

if __name__ == '__main__':
  start()
