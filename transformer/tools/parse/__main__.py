"""Parses sentences with a run that learnt from trees, or scores the run on a treebank.

  python -m transformer.tools.parse --workdir=RUN                       # F1 on its test split
  python -m transformer.tools.parse --workdir=RUN --split=dev --output=dev.parsed
  python -m transformer.tools.parse --workdir=RUN --checkpoint=all      # every checkpoint
  python -m transformer.tools.parse --workdir=RUN --source=words.txt    # a sentence a line
  python -m transformer.tools.parse --workdir=RUN --source=- --draw     # as drawings
  python -m transformer.tools.parse --workdir=RUN --source=words.txt --reference=FILE.mrg

Trees are written with their words, in Penn Treebank brackets, one a line. Scores are printed, and
written to RUN/eval/ or to --results=FOLDER, with those of each sentence.
"""

import dataclasses
import sys
from pathlib import Path

from absl import flags

from transformer.commands import shared_flags
from transformer.data.text.sources import open_corpus
from transformer.data.text.text_files import STANDARD_INPUT, iterate_lines, read_lines
from transformer.errors import UserError
from transformer.evaluation import report, request, results, texts
from transformer.runs import run_directory
from transformer.system import command_line
from transformer.tools.parse.drawing import draw
from transformer.tools.parse.treebank import bracketed, parse_tree, read_trees, split_words

_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_SPLIT = flags.DEFINE_list('split', [], 'test, valid, train, or a file of trees in the folder of '
                           'the data by its own name; or several, with commas between them. '
                           'Without --source, the default is test.')
_SOURCE = flags.DEFINE_string('source', None, 'A file of sentences, or - for standard input. '
                              'Words are separated by spaces, as in the treebank.')
_REFERENCE = flags.DEFINE_string('reference', None, 'A file with the trees of --source.')
_CHECKPOINT, _AVERAGE = shared_flags.define_checkpoint(
    'best, latest, a step, or all, which scores one after the other.')
_OUTPUT = flags.DEFINE_string('output', None, 'Where trees go, or - for standard output.')
_RESULTS = flags.DEFINE_string('results', None, 'The folder where scores go; default: eval/ in the '
                               'directory of the run.')
_BEAM_SIZE, _ALPHA = shared_flags.define_search()
_NBEST = flags.DEFINE_integer('nbest', 1, 'Give this many trees of each sentence, with their '
                              'scores, as lines of number ||| tree ||| score.')
_DRAW = flags.DEFINE_bool('draw', False, 'Draw trees rather than write brackets.')
_EXAMPLES = flags.DEFINE_integer('examples', 0, 'Draw this many trees beside their references, '
                                 'taken evenly from the text.')
_ENSEMBLE = flags.DEFINE_list('ensemble', [], 'Runs whose probabilities are averaged with those of '
                              '--workdir.')
_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Where the trees lie now, if they have moved.')

_TOGETHER = 16  # The most batches of live sentences that are parsed together.


def main(_):
  """Wires flags to a run."""
  _check_flags()
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.decoding import stream
  from transformer.decoding.ensemble import load_ensemble, make_translator
  from transformer.runs.loading import checkpoints_of, load_run
  steps = checkpoints_of(_WORKDIR.value) if _CHECKPOINT.value == 'all' else [_CHECKPOINT.value]
  run = load_run(_WORKDIR.value, steps[0], _AVERAGE.value)
  if not run.config.data.source.startswith(f'{__package__}.'):
    raise UserError(f'{_WORKDIR.value} must have learnt from trees, as configs/parsing.py does; '
                    f'it has data.source={run.config.data.source}')
  members = load_ensemble(run, run_directory.split_runs(','.join(_ENSEMBLE.value))
                          if _ENSEMBLE.value else [],
                          'latest' if _CHECKPOINT.value == 'latest' else 'best', _AVERAGE.value)
  decode = dataclasses.replace(run.config.decode, **shared_flags.given(_BEAM_SIZE, _ALPHA))
  decoding = results.Decoding(decode, run.config.seed, [
      results.Member(str(other.workdir.resolve()), other.steps) for other in members[1:]])
  translate = make_translator(members, decode, decoding.seed, _NBEST.value)
  if _SOURCE.value == STANDARD_INPUT and not _REFERENCE.value and stream.arrives_live():
    _parse_live(members, translate)
    return
  scored = _read_texts(run.config.data)
  folder = report.writable_folder(_WORKDIR.value, _RESULTS.value) if scored[0].references else None
  how = results.describe(run.steps, decoding)
  del how['step']
  tables = [report.Table(results.Place(folder, f'{text.name}.all', how), text, [])
            for text in scored]
  for step in steps:
    if step != steps[0]:
      members = [load_run(_WORKDIR.value, step)]
    for table in tables:
      table.rows.append(_parse(members, translate, table.text, decoding, folder))
  for table in tables if _CHECKPOINT.value == 'all' else ():
    report.print_table(table, run, decoding)


def _parse_live(members, translate):
  """Parses the lines of a pipe or a terminal as they arrive."""
  from transformer.decoding.ensemble import translate_with
  from transformer.decoding.lines import as_lines, write_lines
  from transformer.decoding.stream import stream
  # The file stays open: a thread waits for its next line.
  file = open(0, 'rb', closefd=False)  # noqa: SIM115
  stream(iterate_lines(file, 'standard input'),
         lambda lines, first: _as_trees(lines, translate_with(members, translate, lines, first)),
         lambda first, trees: write_lines(as_lines(trees, _NBEST.value, first), '-'),
         members[0].config.decode.batch_size * _TOGETHER)


def _parse(members, translate, text, decoding, folder):
  """Parses a text; writes the trees, and reports scores if there are references."""
  from transformer.decoding.lines import as_lines, write_lines
  from transformer.evaluation import translating
  run = members[0]
  place = translating.place_of(folder, run, text, decoding)
  answers, seconds = translating.translate(members, translate, text, description='parsing: ')
  try:
    if output := _OUTPUT.value or (None if text.references else '-'):
      write_lines(as_lines(_as_trees(text.sources, answers), _NBEST.value), output)
  finally:  # Trees that do not fit onto a disk can still be scored.
    row = _score(place, run, text, decoding, answers, seconds) if text.references else None
  return row


def _score(place, run, text, decoding, answers, seconds):
  """Reports the scores of a text, and draws examples; returns the row of the table."""
  from transformer.tools.parse import scores
  people = sys.stderr if _OUTPUT.value == '-' else sys.stdout
  row = report.report(place, run, text, decoding, report.Scored(
      scores.evaluate(text, answers, seconds), seconds, scores.more_lines), people)
  count = min(_EXAMPLES.value, len(answers))
  for index in (number * len(answers) // count for number in range(count)):
    parse = scores.mended(text.sources[index], answers[index].text)
    print(f'reference\n{draw(parse_tree(text.references[0][index]))}\n\n'
          f'parse\n{draw(parse.tree)}\n', file=people)
  return row


def _as_trees(sources, answers):
  """Returns translations with trees for people in place of linearised ones."""
  from transformer.tools.parse.scores import mended

  def tree(source, line):
    parse = mended(source, line).tree
    return f'{draw(parse)}\n' if _DRAW.value else bracketed(parse)

  return [answer._replace(text=tree(source, answer.text), nbest=tuple(
      (tree(source, line), score) for line, score in answer.nbest))
          for source, answer in zip(sources, answers, strict=True)]


def _check_flags():
  """Refuses flags that exclude or need each other, before anything is read."""
  if not _WORKDIR.value:
    raise UserError('--workdir=DIR is needed, the directory of a run')
  shared_flags.check_named(_SOURCE, _REFERENCE, _SPLIT, _OUTPUT, _RESULTS, _ENSEMBLE, _DATA_DIR)
  shared_flags.check_at_least(1, _AVERAGE, _NBEST)
  shared_flags.check_at_least(0, _EXAMPLES)
  unscored = _SOURCE.value and not _REFERENCE.value
  every = _CHECKPOINT.value == 'all'
  for wrong, mistake in (
      (_SOURCE.value and (_SPLIT.value or _DATA_DIR.value),
       '--source is a file of its own; leave out --split and --data_dir'),
      (_REFERENCE.value and not _SOURCE.value,
       '--reference needs --source; a split brings its own trees'),
      (_REFERENCE.value == STANDARD_INPUT,
       '--reference must name a file; standard input is for --source'),
      (unscored and (_EXAMPLES.value or _RESULTS.value),
       '--examples and --results are for scores; give --reference=FILE too'),
      (len(_SPLIT.value) > 1 and _OUTPUT.value,
       '--output is for one text, and --split names several; name one split'),
      (_NBEST.value > 1 and (_DRAW.value or not (_OUTPUT.value or unscored)),
       '--nbest writes lists; add --output=FILE or --output=-, and leave out --draw'),
      (_DRAW.value and not (_OUTPUT.value or unscored),
       '--draw is for the trees that are written; add --output=FILE or --output=-'),
      (every and (_OUTPUT.value or _ENSEMBLE.value or _AVERAGE.value > 1 or unscored),
       '--checkpoint=all gives a table of scores; leave out --output, --ensemble, --average, and '
       '--source without --reference')):
    if wrong:
      raise UserError(mistake)
  request.check_output(_OUTPUT.value, _WORKDIR.value, [_SOURCE.value, _REFERENCE.value])


def _read_texts(data):
  """Returns the sentences of the splits, or of a file, with their trees as references."""
  if _SOURCE.value:
    return [_read_file(_SOURCE.value, _REFERENCE.value)]
  if _DATA_DIR.value:
    data = dataclasses.replace(data, dir=_DATA_DIR.value)
  return [_read_split(data, split)
          for split in request.chosen_splits(data, _SPLIT.value, _OUTPUT.value)]


def _read_split(data, split):
  """Reads a split; its name differs from that of eval.py's results, which have other scores."""
  corpus = open_corpus(data, split, dir_flag=f'--{_DATA_DIR.name}')
  return texts.Text(f'{split.replace("/", "_")}.trees', [source for source, _ in corpus[:]],
                    [corpus.gold])


def _read_file(source, reference):
  """Reads sentences, and the file of their trees if there is one."""
  trees = read_trees(reference) if reference else []
  sources = read_lines(source)
  if reference and (not sources or len(trees) != len(sources)):
    raise UserError(f'source and reference must have a sentence for each other; {source} has '
                    f'{len(sources)} lines, {reference} has {len(trees)} trees')
  for number, (line, tree) in enumerate(zip(sources, trees, strict=False), 1):
    if split_words(line) != list(tree.words):
      raise UserError(f'line {number} of {source} must have the words of tree {number} of '
                      f'{reference}, {" ".join(tree.words)!r}; got {line!r}')
  name = 'stdin' if source == STANDARD_INPUT else Path(source).name
  text = texts.Text(name, sources, [list(map(bracketed, trees))] if reference else [])
  return text._replace(name=f'{name}.trees.{text.digest[:8]}')


def start():
  """Runs `main` with the flags of the command line; `attention-parse` calls it."""
  command_line.run(main)


if __name__ == '__main__':
  start()
