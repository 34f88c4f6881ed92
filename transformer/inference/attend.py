r"""Writes a page that shows what every attention head looks at, for one sentence or a file.

  python -m transformer.inference.attend --workdir=RUN --sentence='A sentence.'
  python -m transformer.inference.attend --workdir=RUN --source=FILE --output=FILE.html
  python -m transformer.inference.attend --workdir=RUN --sentence='…' --translation='…'

The page is one file, which any browser opens without a network or a server. A
sentence is translated first, unless its translation is given, and the weights are
those with which the model reads the one and writes the other.
"""

import dataclasses
import os
import sys
from pathlib import Path

from absl import flags, logging

from transformer import command_line, files
from transformer.data.text_files import STANDARD_INPUT, read_lines
from transformer.errors import UserError

_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_SENTENCE = flags.DEFINE_string('sentence', None, 'A sentence to look at.')
_SOURCE = flags.DEFINE_string('source', None, 'A file of sentences, or - for standard input.')
_TRANSLATION = flags.DEFINE_string('translation', None, 'The translation to look at, rather than '
                                   'the run\'s own: the text with --sentence, a file with '
                                   '--source.')
_OUTPUT = flags.DEFINE_string('output', None, 'Where the page goes, or - for standard output; '
                              'default: RUN/eval/attention.html.')
_CHECKPOINT, _AVERAGE = command_line.define_checkpoint()
_BEAM_SIZE = flags.DEFINE_integer('beam_size', None, 'Beams; default: the run\'s config.')
_ALPHA = flags.DEFINE_float('alpha', None, 'Length penalty; default: the run\'s config.')

# A page has about a byte for each, and a browser reads no more at ease.
_MOST_WEIGHTS = 100_000_000


def main(_):
  """Wires flags to a run, and writes the page."""
  if not _WORKDIR.value:
    raise UserError('--workdir=DIR is needed, the directory of a run')
  command_line.check_named(_SENTENCE, _SOURCE, _TRANSLATION, _OUTPUT)
  if (_SENTENCE.value is None) == (_SOURCE.value is None):
    raise UserError('one of --sentence=\'…\' and --source=FILE is needed, and not both')
  if _TRANSLATION.value and (_BEAM_SIZE.value is not None or _ALPHA.value is not None):
    raise UserError('--beam_size and --alpha are of a search, and --translation makes none')
  command_line.check_at_least(1, _AVERAGE)
  output = _OUTPUT.value or str(Path(_WORKDIR.value).expanduser() / 'eval' / 'attention.html')
  if output != '-':
    path = Path(output).expanduser()
    if path.is_dir():
      raise UserError(f'--output must name a file; {output} is a directory')
    # With --sentence the translation is no file.
    inputs = [] if _SOURCE.value is None else [_SOURCE.value, _TRANSLATION.value or _SOURCE.value]
    command_line.check_not_read('output', path, inputs, _WORKDIR.value)
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.inference.attention_maps import Attender
  from transformer.inference.attention_page import attention_page
  from transformer.run import check_finite, load_run
  run = load_run(_WORKDIR.value, _CHECKPOINT.value, _AVERAGE.value)
  if output != '-':
    command_line.check_folder('output', path.parent)
  changes = {flag.name: flag.value for flag in (_BEAM_SIZE, _ALPHA) if flag.value is not None}
  decode = dataclasses.replace(run.config.decode, **changes)
  numbers, sources, translations = _read()
  max_source = run.config.data.max_length
  _check_size(run, sources, max_source)
  if translations is None:
    translations = _translate(run, decode, sources)
  maps = Attender(run.model, run.vocabulary, max_source, max_source + decode.max_extra_length)(
      run.params, sources, translations)
  check_finite([run], (float(each.weights.cross.sum()) for each in maps))
  for kind, name, most in (('sources', 'source_cut', 'data.max_length'),
                           ('translations', 'target_cut',
                            'data.max_length + decode.max_extra_length')):
    if cut := sum(getattr(each, name) for each in maps):
      logging.warning('%d of %d %s were longer than %s and were cut', cut, len(maps), kind, most)

  steps = ', '.join(map(str, run.steps))
  page = attention_page(maps, f'{Path(_WORKDIR.value).name}, step {steps}', numbers)
  if output == '-':
    sys.stdout.buffer.write(page)
    return
  files.write(path, page)
  layers, heads = maps[0].weights.cross.shape[:2]
  print(f'{_count(len(maps), "sentence")}, {_count(layers, "layer")} of {_count(heads, "head")}: '
        f'open {output} in a browser, {len(page) / 1000:,.0f} kB')


def _count(number: int, thing: str) -> str:
  return f'{number:,} {thing}{"s" * (number != 1)}'


def _read() -> tuple[list[int], list[str], list[str] | None]:
  """The numbers of lines that are not blank, the lines, and their translations if given."""
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
    translations = None if _TRANSLATION.value is None else read_lines(_TRANSLATION.value)
    if translations is not None and len(translations) != len(sources):
      raise UserError(f'source and translation must have a line for each other; {_SOURCE.value} '
                      f'has {len(sources)} lines, {_TRANSLATION.value} has {len(translations)}')
  chosen = [place for place, line in enumerate(sources) if line.strip()]
  if not chosen:
    raise UserError('there is nothing to look at: '
                    f'{"--sentence" if _SOURCE.value is None else _SOURCE.value} is blank')
  return ([place + 1 for place in chosen], [sources[place] for place in chosen],
          translations and [translations[place] for place in chosen])


def _is_text(argument: str) -> bool:
  """Whether an argument could be decoded; what cannot be becomes lone surrogates."""
  return not any('\ud800' <= each <= '\udfff' for each in argument)


def _check_size(run, sources, max_source: int):
  """Refuses a page that no browser would open, before the work."""
  shape = run.config.model
  lengths = [min(len(ids) + 1, max_source) for ids in run.vocabulary.encode_batch(sources)]
  weights = sum(3 * shape.num_layers * shape.num_heads * length**2 for length in lengths)
  if weights > _MOST_WEIGHTS:
    raise UserError(f'a page holds about {_MOST_WEIGHTS:,} weights at most; these {len(sources):,} '
                    f'sentences have about {weights:,}; give fewer or shorter ones')


def _translate(run, decode, sources) -> list[str]:
  from transformer.inference.translate import Translator
  from transformer.run import translate_with
  from transformer.training.mesh import sentence_sharding
  translate = Translator(run.model, run.vocabulary, decode, run.config.data.max_length,
                         run.config.seed, sentence_sharding(run.mesh, decode.batch_size))
  return [answer.text for answer in translate_with([run], translate, sources)]


if __name__ == '__main__':
  command_line.run(main)
