r"""Writes a page that shows what every attention head looks at, for one sentence or a file.

  python -m transformer.tools.attend --workdir=RUN --sentence='A sentence.'
  python -m transformer.tools.attend --workdir=RUN --source=FILE --output=FILE.html
  python -m transformer.tools.attend --workdir=RUN --sentence='…' --translation='…'

The page is one file, which any browser opens without a network or a server. A sentence is
translated first, unless its translation is given. The page then shows the attention weights with
which the model reads the sentence and writes the translation.
"""

import dataclasses
import os
import sys
from pathlib import Path

from absl import flags

from transformer.commands import shared_flags
from transformer.data.text.text_files import STANDARD_INPUT, is_blank, read_lines
from transformer.errors import UserError
from transformer.evaluation.texts import read_beside
from transformer.runs import run_directory
from transformer.system import command_line, outputs

_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_SENTENCE = flags.DEFINE_string('sentence', None, 'A sentence to look at.')
_SOURCE = flags.DEFINE_string('source', None, 'A file of sentences, or - for standard input.')
_TRANSLATION = flags.DEFINE_string('translation', None, 'The translation to look at, rather than '
                                   'the run\'s own: the text with --sentence, a file with '
                                   '--source.')
_OUTPUT = flags.DEFINE_string('output', None, 'Where the page goes, or - for standard output; '
                              'default: RUN/eval/attention.html.')
_CHECKPOINT, _AVERAGE = shared_flags.define_checkpoint()
_BEAM_SIZE, _ALPHA = shared_flags.define_search()

# A page has about a byte for each weight; browsers are slow on larger pages.
_MOST_WEIGHTS = 100_000_000


def main(_):
  """Wires flags to a run, and writes the page."""
  if not _WORKDIR.value:
    raise UserError('--workdir=DIR is needed, the directory of a run')
  shared_flags.check_named(_SENTENCE, _SOURCE, _TRANSLATION, _OUTPUT)
  if (_SENTENCE.value is None) == (_SOURCE.value is None):
    raise UserError('one of --sentence=\'…\' and --source=FILE is needed, and not both')
  if _TRANSLATION.value and (_BEAM_SIZE.value is not None or _ALPHA.value is not None):
    raise UserError('--beam_size and --alpha are of a search, and --translation makes none')
  shared_flags.check_at_least(1, _AVERAGE)
  output = _OUTPUT.value or str(Path(_WORKDIR.value).expanduser() / 'eval' / 'attention.html')
  if output != '-':
    path = Path(output).expanduser()
    if path.is_dir():
      raise UserError(f'--output must name a file; {output} is a directory')
    # With --sentence the translation is no file.
    inputs = [] if _SOURCE.value is None else [_SOURCE.value, _TRANSLATION.value or _SOURCE.value]
    outputs.check_not_read('output', path, inputs + run_directory.record_files(_WORKDIR.value))
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.decoding.ensemble import make_translator, translate_with
  from transformer.runs.loading import load_run
  from transformer.tools.attend.page import page_of_run
  run = load_run(_WORKDIR.value, _CHECKPOINT.value, _AVERAGE.value)
  if output != '-':
    outputs.check_file('output', path)
  decode = dataclasses.replace(run.config.decode, **shared_flags.given(_BEAM_SIZE, _ALPHA))
  numbers, sources, translations = _read()
  _check_size(run, sources)
  if translations is None:
    translate = make_translator([run], decode, run.config.seed)
    # With the blank lines between them, the sentences have the numbers that eval.py gives them.
    lines = [''] * numbers[-1]
    for number, source in zip(numbers, sources, strict=True):
      lines[number - 1] = source
    answers = translate_with([run], translate, lines)
    translations = [answers[number - 1].text for number in numbers]
  page, shown = page_of_run(run, sources, translations, numbers)
  if output == '-':
    sys.stdout.buffer.write(page)
    return
  outputs.write(path, page)
  layers, heads = shown[0].weights.cross.shape[:2]
  print(f'{_count(len(shown), "sentence")}, {_count(layers, "layer")} of {_count(heads, "head")}: '
        f'open {output} in a browser, {len(page) / 1000:,.0f} kB')


def _count(number: int, thing: str) -> str:
  return f'{number:,} {thing}{"s" * (number != 1)}'


def _read() -> tuple[list[int], list[str], list[str] | None]:
  """Returns the numbers of the lines that are not blank, the lines, and given translations."""
  if _SENTENCE.value is not None:
    sources = [_SENTENCE.value]
    translations = None if _TRANSLATION.value is None else [_TRANSLATION.value]
    for flag in (_SENTENCE, _TRANSLATION):
      if flag.value and not _is_text(flag.value):
        raise UserError(f'--{flag.name} must be UTF-8; got {os.fsencode(flag.value)!r}')
  else:
    if _TRANSLATION.value == STANDARD_INPUT:
      raise UserError('--translation must name a file; standard input is for --source')
    sources = read_lines(_SOURCE.value)
    translations = (read_beside('translation', _TRANSLATION.value, sources) if _TRANSLATION.value
                    else None)
  chosen = [place for place, line in enumerate(sources) if not is_blank(line)]
  if not chosen:
    raise UserError('there is nothing to look at: '
                    f'{"--sentence" if _SOURCE.value is None else _SOURCE.value} is blank')
  numbers, sources = [place + 1 for place in chosen], [sources[place] for place in chosen]
  if translations is None:
    return numbers, sources, None
  return numbers, sources, [translations[place] for place in chosen]


def _is_text(argument: str) -> bool:
  """Returns whether an argument was valid UTF-8; Python turns other bytes into surrogates."""
  return not any('\ud800' <= each <= '\udfff' for each in argument)


def _check_size(run, sources):
  """Refuses a page that no browser would open, before the work."""
  shape, data = run.config.model, run.config.data
  weights = 0
  for ids in run.vocabulary.source.encode_batch(sources):
    # A translation is about as long as its source.
    length = min(len(ids) + 1, data.max_length)
    weights += shape.num_heads * (shape.num_layers + 2 * shape.decoder_depth) * length**2
  if weights > _MOST_WEIGHTS:
    raise UserError(f'a page holds about {_MOST_WEIGHTS:,} weights at most; these {len(sources):,} '
                    f'sentences have about {weights:,}; give fewer or shorter ones')


def start():
  """Runs `main` with the flags of the command line; `attention-attend` calls it."""
  command_line.run(main)


if __name__ == '__main__':
  start()
