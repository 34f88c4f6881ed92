r"""Writes a page with the attention weights of every head.

  python -m transformer.tools.attend --workdir=RUN --sentence='A sentence.'
  python -m transformer.tools.attend --workdir=RUN --sentence='…' --sentence='…' --output=FILE.html
  python -m transformer.tools.attend --workdir=RUN --sentence='…' --translation='…'

The page is one file, which any browser opens without a network or a server. A sentence is
translated first, unless its translation is given. The page shows the attention weights of the model
for the sentence and its translation.
"""

import os
import sys
from pathlib import Path

from absl import flags

from transformer import files
from transformer.cli import shared_flags
from transformer.cli.request import check_output
from transformer.data.text.text_files import is_blank
from transformer.errors import UserError, short_repr
from transformer.system import command_line, outputs

_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_SENTENCE = flags.DEFINE_multi_string(
  'sentence', [], 'A source sentence; repeat the flag for several.'
)
_TRANSLATION = flags.DEFINE_multi_string(
  'translation', [], "A translation of each sentence, instead of the run's."
)
_OUTPUT = flags.DEFINE_string(
  'output',
  None,
  'The file for the page, or - for standard output (default: RUN/eval/attention.html).',
)
_CHECKPOINT, _AVERAGE, _BEAM_SIZE, _ALPHA = shared_flags.define(
  'checkpoint', 'average', 'beam_size', 'alpha'
)


def main(_):
  """Reads the flags, loads a run, and writes the page."""
  sentences = _SENTENCE.value
  translations = _TRANSLATION.value
  _check(sentences, translations)
  # Import JAX only now, so that --help and invalid flags respond immediately.
  from transformer.runs.loading import check_finite_scores
  from transformer.tools.attend.page import attention_page
  from transformer.trained_run import load

  run = load(_WORKDIR.value, _CHECKPOINT.value, _AVERAGE.value)
  if not translations:
    options = shared_flags.explicit_values(_BEAM_SIZE, _ALPHA)
    translations = run.translate(sentences, **options)
  maps = list(map(run.attention, sentences, translations))
  sums = [float(weights.cross.sum()) for weights in maps]
  check_finite_scores([run], sums)
  steps = ', '.join(map(str, run.checkpoint_steps))
  page = attention_page(maps, f'{run.workdir.resolve().name}, step {steps}')
  if _OUTPUT.value == '-':
    sys.stdout.buffer.write(page)
    return
  path = files.as_path(_OUTPUT.value or Path(_WORKDIR.value, 'eval', 'attention.html'))
  outputs.write(path, page)
  print(f'open {path} in a browser, {len(page) / 1000:,.0f} kB')


def _check(sentences: list[str], translations: list[str]):
  """Raises `UserError` if flags are missing, or are mutually exclusive."""
  if not _WORKDIR.value:
    raise UserError('--workdir is missing; pass the directory of a run: --workdir=DIR')
  if not sentences or any(map(is_blank, sentences)):
    raise UserError("--sentence is missing or blank; pass --sentence='…'")
  if translations and len(translations) != len(sentences):
    raise UserError(
      f'--translation must be given for each --sentence or for none; got '
      f'{len(translations)} for {len(sentences)}'
    )
  if translations and (_BEAM_SIZE.value is not None or _ALPHA.value is not None):
    raise UserError('--translation runs no search; remove --beam_size and --alpha')
  for text in [*sentences, *translations]:  # Python decodes other bytes as surrogates.
    if any('\ud800' <= character <= '\udfff' for character in text):
      raise UserError(
        f'--sentence and --translation must be UTF-8; got {short_repr(os.fsencode(text))}'
      )
  shared_flags.check_at_least(1, _AVERAGE)
  check_output(_OUTPUT.value, [], _WORKDIR.value)


start = command_line.entry_point(main)  # `attention-attend` calls it.

if __name__ == '__main__':
  start()
