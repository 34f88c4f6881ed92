r"""Writes the model card of a run, for Hugging Face's hub, and a human-readable report.

  python -m transformer.tools.card RUN
  python -m transformer.tools.card RUN --license=mit --output=FOLDER

RUN/README.md has Hugging Face's metadata, scores, datasets with digests, package versions, training
cost and limitations. RUN/report.html is one page with curves, examples with attention, settings and
provenance; each call overwrites it. An existing card, which may have been edited, is kept unless
--overwrite is given.
"""

from pathlib import Path

from absl import flags, logging

from transformer import files
from transformer.config_fields import check_range
from transformer.errors import UserError, warn_on_error
from transformer.system import command_line, outputs
from transformer.system.installation import rewrite_commands

_OUTPUT = flags.DEFINE_string(
  'output', None, 'The folder to write into (default: RUN).'
)
_LICENSE = flags.DEFINE_string(
  'license',
  None,
  'The license of the model, as a Hugging Face license ID (default: a line to fill in).',
)
_EXAMPLES = flags.DEFINE_integer(
  'examples', 3, 'The number of sentences in the report.'
)
_OVERWRITE = flags.DEFINE_bool('overwrite', False, 'Replace an existing card.')


def main(argv):
  """Writes the card and the report of the run given by the command line."""
  if len(argv) != 2:
    raise UserError(
      rewrite_commands('pass one run: python -m transformer.tools.card RUN')
    )
  check_range('--examples', _EXAMPLES.value, min=0)
  from transformer.tools.card import model_card, report, run_facts

  if _LICENSE.value is not None:
    model_card.check_license(_LICENSE.value)
  workdir = files.as_path(argv[1])
  folder = workdir if _OUTPUT.value is None else files.as_path(_OUTPUT.value)
  facts = run_facts.read_facts(workdir)
  for name in (model_card.CARD, model_card.REPORT):
    outputs.check_file('output', folder / name)
  run = None
  with warn_on_error('there is no checkpoint to load', logging.warning):
    # Import JAX only now, so that invalid flags respond immediately.
    from transformer import load

    run = load(workdir)
    facts = facts._replace(steps=run.checkpoint_steps)
  card = folder / model_card.CARD
  if card.exists() and not _OVERWRITE.value:
    logging.warning('%s exists, so it is kept; --overwrite replaces it', card)
  else:
    _write(card, model_card.card_text(facts, _LICENSE.value or ''))
  page = report.report_text(facts, run, _EXAMPLES.value)
  _write(folder / model_card.REPORT, page)


def _write(path: Path, text: str):
  """Writes a text in UTF-8, and prints the path."""
  outputs.write(path, text.encode('utf-8', 'backslashreplace'))
  print(f'wrote {path}')


# `attention-card` calls it.
start = command_line.entry_point(main, takes_arguments=True)

if __name__ == '__main__':
  start()
