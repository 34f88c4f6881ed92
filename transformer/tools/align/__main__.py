r"""Links the words of sentences to those of their translations, and scores the links.

  python -m transformer.tools.align --workdir=RUN --source=FILE --reference=FILE2 --output=LINKS
  python -m transformer.tools.align --workdir=RUN --source=FILE --translations=OUT --output=LINKS
  python -m transformer.tools.align --workdir=RUN --source=FILE --reference=FILE2 --gold=GOLD

The translations are those of --reference. Without them the run translates as eval.py does, and
writes its translations to --translations. A line of links is `0-0 1-2 …`, a source and a target
word each, from 0. --gold is a file of links that people drew; the error rate is printed, and
written to RUN/eval/ or to --results=FOLDER.
"""

from pathlib import Path

from absl import flags

from transformer.commands import request_flags, shared_flags
from transformer.data.text.text_files import STANDARD_INPUT
from transformer.errors import UserError
from transformer.evaluation import report, results, texts
from transformer.evaluation.request import Request
from transformer.runs import run_directory
from transformer.system import command_line, outputs
from transformer.tools.align import error_rate
from transformer.tools.align.pharaoh import alignment_lines, read_gold

_FLAGS = request_flags.define('workdir', 'source', 'reference', 'results', 'ensemble', 'batch_size')
_TRANSLATIONS = flags.DEFINE_string('translations', None, 'Where the run\'s own translations go, '
                                    'if none are given by --reference.')
_OUTPUT = flags.DEFINE_string('output', None, 'Where links go, or - for standard output.')
_GOLD = flags.DEFINE_string('gold', None, 'A file of links that people drew, with which those of '
                            '--reference are compared: the alignment error rate.')
_LAYER = flags.DEFINE_integer('layer', None, 'The layer of the decoder whose attention links '
                              'words, from 1 at the bottom; default: the mean of all layers.')
_SHIFT = flags.DEFINE_bool('shift', False, 'Link a word by the attention at the step after it was '
                           'written (SHIFT-ATT), and not at the step that writes it.')


def main(_):
  """Wires flags to a run, and aligns."""
  request = _request()
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.decoding.ensemble import make_translator
  from transformer.decoding.lines import write_lines
  from transformer.evaluation import translating
  from transformer.tools.align.word_alignment import align, check_layer
  run = translating.open_run(request, request.checkpoint)
  runs = translating.with_ensemble(request, run)
  check_layer([run.model for run in runs], _LAYER.value)
  decoding = request.decoding(runs)
  text, = request.read_texts(run.config.data)
  if _GOLD.value:
    gold = read_gold(_GOLD.value, text.sources, text.references[0])
    how = results.describe_models(run.steps, decoding.ensemble) | {
        flag.name: int(flag.value) for flag in (_LAYER, _SHIFT) if flag.value}
    place = results.Place(translating.folder_of(request, text), f'{text.name}.alignment', how)
    place.check_own(run.workdir, text.digest)
  if text.references:
    targets = text.references[0]
  else:
    translator = make_translator(runs, decoding.config, decoding.seed)
    answers, _ = translating.translate(runs, translator, text)
    write_lines(targets := [answer.text for answer in answers], _TRANSLATIONS.value)
  links = align(runs, text.sources, targets, _LAYER.value, _SHIFT.value)
  if _OUTPUT.value:
    write_lines(alignment_lines(links), _OUTPUT.value)
  if _GOLD.value:
    _report(request, place, run, text, gold, links)


def _request() -> Request:
  """Returns the request; refuses flags that exclude or need each other."""
  shared_flags.check_named(_TRANSLATIONS, _OUTPUT, _GOLD)
  request = request_flags.request(_FLAGS, output=_OUTPUT.value)
  for wrong, mistake in (
      (not request.source, '--source=FILE is needed'),
      (bool(request.reference) == bool(_TRANSLATIONS.value) or len(request.reference) > 1,
       '--reference=FILE is needed, translations that are given, or --translations=FILE, where the '
       'run\'s own go; and not both'),
      (not (_OUTPUT.value or _GOLD.value),
       '--output=FILE is needed, where links go, or --gold=FILE, with which they are compared'),
      (_GOLD.value and not request.reference,
       '--gold is for translations that are given; add --reference=FILE'),
      (_GOLD.value == STANDARD_INPUT,
       '--gold must name a file; standard input is for --source'),
      (request.results and not _GOLD.value,
       f'--results={request.results} is for error rates; add --gold=FILE, or leave it out'),
      (request.reference and (request.beam_size, request.alpha) != (None, None),
       '--beam_size and --alpha are of a search, and --reference makes none')):
    if wrong:
      raise UserError(mistake)
  request.check_output([_GOLD.value])
  if _TRANSLATIONS.value and _TRANSLATIONS.value != '-':
    path = Path(_TRANSLATIONS.value).expanduser()
    outputs.check_file('translations', path)
    outputs.check_not_read('translations', path,
                           [request.source, *run_directory.record_files(request.workdir)])
  if _TRANSLATIONS.value and _OUTPUT.value and len(
      {Path(flag.value).expanduser().resolve() for flag in (_OUTPUT, _TRANSLATIONS)}) == 1:
    raise UserError(f'--output and --translations must name two files; both name {_OUTPUT.value}')
  return request


def _report(request: Request, place: results.Place, run, text: texts.Text, gold, links):
  """Prints the error rate, and then writes it with that of each pair."""
  result, sentences = error_rate.evaluate(text.sources, text.references[0], gold, links)
  how = ', '.join(f'{name} {value}' for name, value in place.how.items())
  print(f'{place.text}: {len(gold)} pairs, {how}', *error_rate.as_table(result), sep='\n',
        file=request.people)
  if place.folder:
    place.write(run.workdir, text.digest, result | report.origin(run, text) | {'how': place.how},
                sentences)
    print(f'also in {place.folder / place.stem}.json', file=request.people)


def start():
  """Runs `main` with the flags of the command line; `attention-align` calls it."""
  command_line.run(main)


if __name__ == '__main__':
  start()
