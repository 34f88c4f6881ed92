r"""Links the words of sentences to those of their translations, and scores the links.

  python -m transformer.tools.align --workdir=RUN --source=FILE --reference=FILE2 --output=LINKS
  python -m transformer.tools.align --workdir=RUN --source=FILE --translations=OUT --output=LINKS
  python -m transformer.tools.align --workdir=RUN --source=FILE --reference=FILE2 --gold=GOLD

The translations are those of --reference. Without them the run translates as eval.py does, and
writes its translations to --translations. A line of links is `0-0 1-2 …`, a source and a target
word each, from 0. --gold is a file of links that people drew; the error rate is printed, and
written to RUN/eval/ or to --results=FOLDER.
"""

import dataclasses
import sys
from pathlib import Path

from absl import flags

from transformer.commands import shared_flags
from transformer.data.text.text_files import STANDARD_INPUT
from transformer.errors import UserError
from transformer.evaluation import report, results, texts
from transformer.runs import run_directory
from transformer.system import command_line, outputs
from transformer.system.progress import progress_bar
from transformer.tools.align import error_rate
from transformer.tools.align.pharaoh import alignment_lines, read_gold

_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_SOURCE = flags.DEFINE_string('source', None, 'A file of sentences, or - for standard input.')
_REFERENCE = flags.DEFINE_string('reference', None, 'A file with a translation of each.')
_TRANSLATIONS = flags.DEFINE_string('translations', None, 'Where the run\'s own translations go, '
                                    'if none are given by --reference.')
_OUTPUT = flags.DEFINE_string('output', None, 'Where links go, or - for standard output.')
_GOLD = flags.DEFINE_string('gold', None, 'A file of links that people drew, with which those of '
                            '--reference are compared: the alignment error rate.')
_RESULTS = flags.DEFINE_string('results', None, 'The folder where error rates go; default: eval/ '
                               'in the directory of the run.')
_LAYER = flags.DEFINE_integer('layer', None, 'The layer of the decoder whose attention links '
                              'words, from 1 at the bottom; default: the mean of all layers.')
_SHIFT = flags.DEFINE_bool('shift', False, 'Link a word by the attention at the step after it was '
                           'written (SHIFT-ATT), and not at the step that writes it.')
_CHECKPOINT, _AVERAGE = shared_flags.define_checkpoint()
_BEAM_SIZE, _ALPHA = shared_flags.define_search()
_ENSEMBLE = flags.DEFINE_list('ensemble', [], 'Runs that take part with equal weight: their '
                              'attention is averaged, and their probabilities.')


def main(_):
  """Wires flags to a run, and aligns."""
  _check_flags()
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.decoding.ensemble import load_ensemble
  from transformer.decoding.lines import write_lines
  from transformer.runs.loading import load_run
  from transformer.tools.align.word_alignment import align, check_layer
  others = run_directory.split_runs(','.join(_ENSEMBLE.value)) if _ENSEMBLE.value else []
  runs = load_ensemble(load_run(_WORKDIR.value, _CHECKPOINT.value, _AVERAGE.value), others,
                       'latest' if _CHECKPOINT.value == 'latest' else 'best', _AVERAGE.value)
  check_layer([run.model for run in runs], _LAYER.value)
  text = texts.read_files(_SOURCE.value, [_REFERENCE.value] if _REFERENCE.value else [])
  if _GOLD.value:
    gold = read_gold(_GOLD.value, text.sources, text.references[0])
    place = _place(runs, text)
  targets = text.references[0] if text.references else _translate(runs, text.sources)
  links = align(runs, text.sources, targets, _LAYER.value, _SHIFT.value)
  if _OUTPUT.value:
    write_lines(alignment_lines(links), _OUTPUT.value)
  if _GOLD.value:
    _report(place, runs[0], text, gold, links)


def _check_flags():
  """Refuses flags that exclude or need each other, before anything is read."""
  if not _WORKDIR.value or not _SOURCE.value:
    raise UserError('--workdir=DIR is needed, the directory of a run, and --source=FILE')
  shared_flags.check_named(_REFERENCE, _TRANSLATIONS, _OUTPUT, _GOLD, _RESULTS, _ENSEMBLE)
  shared_flags.check_at_least(1, _AVERAGE)
  if bool(_REFERENCE.value) == bool(_TRANSLATIONS.value):
    raise UserError('--reference=FILE is needed, translations that are given, or '
                    '--translations=FILE, where the run\'s own go; and not both')
  if not (_OUTPUT.value or _GOLD.value):
    raise UserError('--output=FILE is needed, where links go, or --gold=FILE, with which they are '
                    'compared')
  if _GOLD.value and not _REFERENCE.value:
    raise UserError('--gold is for translations that are given; add --reference=FILE')
  if _RESULTS.value and not _GOLD.value:
    raise UserError(f'--results={_RESULTS.value} is for error rates; add --gold=FILE, or leave it '
                    f'out')
  if _REFERENCE.value and (searching := shared_flags.given(_BEAM_SIZE, _ALPHA)):
    raise UserError(f'--{next(iter(searching))} is of a search, and --reference makes none')
  read = [path for path in (_SOURCE.value, _REFERENCE.value, _GOLD.value) if path]
  if STANDARD_INPUT in read[1:]:
    raise UserError('only --source can be standard input; name a file by --reference and --gold')
  written = [flag for flag in (_OUTPUT, _TRANSLATIONS) if flag.value and flag.value != '-']
  for flag in written:
    path = Path(flag.value).expanduser()
    outputs.check_file(flag.name, path)
    outputs.check_not_read(flag.name, path, read + run_directory.record_files(_WORKDIR.value))
  if _TRANSLATIONS.value and _OUTPUT.value and len(
      {Path(flag.value).expanduser().resolve() for flag in (_OUTPUT, _TRANSLATIONS)}) == 1:
    raise UserError(f'--output and --translations must name two files; both name {_OUTPUT.value}')


def _place(runs, text: texts.Text) -> results.Place:
  """Returns where the error rate goes, once it is known that it may go there."""
  others = [results.Member(str(run.workdir.resolve()), run.steps) for run in runs[1:]]
  how = results.describe_models(runs[0].steps, others) | {
      flag.name: int(flag.value) for flag in (_LAYER, _SHIFT) if flag.value}
  place = results.Place(report.writable_folder(_WORKDIR.value, _RESULTS.value),
                        f'{text.name}.alignment', how)
  place.check_own(runs[0].workdir, text.digest)
  return place


def _translate(runs, sources: list[str]) -> list[str]:
  """Translates as eval.py does; writes the translations, and returns them."""
  from transformer.decoding.ensemble import make_translator, translate_with
  from transformer.decoding.lines import write_lines
  from transformer.decoding.translator import warn_of_cut
  config = runs[0].config
  decode = dataclasses.replace(config.decode, **shared_flags.given(_BEAM_SIZE, _ALPHA))
  translate = make_translator(runs, decode, config.seed)
  with progress_bar(len(sources), description='translating: ') as bar:
    answers = translate_with(runs, translate, sources, progress=bar.update)
  warn_of_cut([answer.cut for answer in answers], config.data.max_length)
  translations = [answer.text for answer in answers]
  write_lines(translations, _TRANSLATIONS.value)
  return translations


def _report(place: results.Place, run, text: texts.Text, gold, links):
  """Prints the error rate, and then writes it with that of each pair."""
  people = sys.stderr if _OUTPUT.value == '-' else sys.stdout
  result, sentences = error_rate.evaluate(text.sources, text.references[0], gold, links)
  how = ', '.join(f'{name} {value}' for name, value in place.how.items())
  print(f'{place.text}: {len(gold)} pairs, {how}', *error_rate.as_table(result), sep='\n',
        file=people)
  if place.folder:
    place.write(run.workdir, text.digest, result | report.origin(run, text) | {'how': place.how},
                sentences)
    print(f'also in {place.folder / place.stem}.json', file=people)


def start():
  """Runs `main` with the flags of the command line; `attention-align` calls it."""
  command_line.run(main)


if __name__ == '__main__':
  start()
