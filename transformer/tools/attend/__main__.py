r"""Writes a page that shows what every attention head looks at, for one sentence or a file.

  python -m transformer.tools.attend --workdir=RUN --sentence='A sentence.'
  python -m transformer.tools.attend --workdir=RUN --source=FILE --output=FILE.html
  python -m transformer.tools.attend --workdir=RUN --sentence='…' --translation='…'

The page is one file, which any browser opens without a network or a server. A sentence is
translated first, unless its translation is given. The page then shows the attention weights with
which the model reads the sentence and writes the translation.
"""

import os
import sys
from pathlib import Path

from absl import flags

from transformer import files
from transformer.commands import shared_flags
from transformer.commands.request import check_output
from transformer.data.text.text_files import STANDARD_INPUT, is_blank, read_lines
from transformer.decoding.config import decoding_for
from transformer.errors import UserError, shown
from transformer.evaluation.texts import read_beside
from transformer.system import command_line, outputs

_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_SENTENCE = flags.DEFINE_string('sentence', None, 'A sentence to look at.')
_SOURCE = flags.DEFINE_string(
  'source', None, 'A file of sentences, or - for standard input.'
)
_TRANSLATION = flags.DEFINE_string(
  'translation',
  None,
  'The translation to look at, rather than '
  "the run's own: the text with --sentence, a file with "
  '--source.',
)
_OUTPUT = flags.DEFINE_string(
  'output',
  None,
  'Where the page goes, or - for standard output; default: RUN/eval/attention.html.',
)
_CHECKPOINT, _AVERAGE, _BEAM_SIZE, _ALPHA = shared_flags.define(
  'checkpoint', 'average', 'beam_size', 'alpha'
)

# A page has about a byte for each weight; browsers are slow on larger pages.
_MOST_WEIGHTS = 100_000_000


def main(_):
  """Wires flags to a run, and writes the page."""
  if not _WORKDIR.value:
    raise UserError('--workdir=DIR is needed, the directory of a run')
  if (_SENTENCE.value is None) == (_SOURCE.value is None):
    raise UserError("one of --sentence='…' and --source=FILE is needed, and not both")
  if _TRANSLATION.value and (_BEAM_SIZE.value is not None or _ALPHA.value is not None):
    raise UserError(
      '--beam_size and --alpha are of a search, and --translation makes none'
    )
  shared_flags.check_at_least(1, _AVERAGE)
  # With --sentence the translation is no file.
  read = [_SOURCE.value, _TRANSLATION.value] if _SOURCE.value else []
  check_output(_OUTPUT.value, read, _WORKDIR.value)
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.tools.attend.page import page_of_run
  from transformer.trained_run import load

  run = load(_WORKDIR.value, _CHECKPOINT.value, _AVERAGE.value)
  given = shared_flags.given(_BEAM_SIZE, _ALPHA)
  decoding = decoding_for(run.config.decode, run.config.seed, **given)
  sources, translations = _read()
  shown = [place for place, line in enumerate(sources) if not is_blank(line)]
  if not shown:
    raise UserError(
      f'there is nothing to look at: {_SOURCE.value or "--sentence"} is blank'
    )
  _check_size(run, sources)
  if translations is None:
    translations = [answer.text for answer in run.answers(sources, decoding)]
  page = page_of_run(
    run,
    [sources[place] for place in shown],
    [translations[place] for place in shown],
    [place + 1 for place in shown],
  )
  if _OUTPUT.value == '-':
    sys.stdout.buffer.write(page)
    return
  path = files.as_path(_OUTPUT.value or Path(_WORKDIR.value, 'eval', 'attention.html'))
  outputs.write(path, page)
  print(f'open {path} in a browser, {len(page) / 1000:,.0f} kB')


def _read() -> tuple[list[str], list[str] | None]:
  """Returns the sentences, and given translations."""
  if _SENTENCE.value is not None:
    for flag in (_SENTENCE, _TRANSLATION):  # Python turns other bytes into surrogates.
      if any('\ud800' <= character <= '\udfff' for character in flag.value or ''):
        raise UserError(
          f'--{flag.name} must be UTF-8; got {shown(os.fsencode(flag.value))}'
        )
    return [_SENTENCE.value], None if _TRANSLATION.value is None else [
      _TRANSLATION.value
    ]
  if _TRANSLATION.value == STANDARD_INPUT:
    raise UserError('--translation must name a file; standard input is for --source')
  sources = read_lines(_SOURCE.value)
  if not _TRANSLATION.value:
    return sources, None
  return sources, read_beside('translation', _TRANSLATION.value, sources)


def _check_size(run, sources):
  """Refuses a page that no browser would open, before the work."""
  shape = run.config.model
  most = run.config.data.max_length
  # A translation is about as long as its source.
  lengths = [
    min(len(ids) + 1, most) for ids in run.vocabulary.source.encode_batch(sources)
  ]
  maps = shape.num_heads * (shape.num_layers + 2 * shape.decoder_depth)
  weights = maps * sum(length**2 for length in lengths)
  if weights > _MOST_WEIGHTS:
    raise UserError(
      f'a page holds about {_MOST_WEIGHTS:,} weights at most; these {len(sources):,} '
      f'sentences have about {weights:,}; give fewer or shorter ones'
    )


start = command_line.starter(main)  # `attention-attend` calls it.

if __name__ == '__main__':
  start()
