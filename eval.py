"""Scores a run on a split of its data, or translates text with it.

  python eval.py --workdir=DIR                                   # its test split
  python eval.py --workdir=DIR --split=valid --beam_size=1
  python eval.py --workdir=DIR --source=FILE --reference=FILE
  python eval.py --workdir=DIR --source=-                        # a prompt; in a pipe, a stream
  python eval.py --workdir=DIR --source=- --output=-  < in.txt   # only translate
  python eval.py --workdir=DIR --source=- --sample --seed=1  < in.txt
  python eval.py --workdir=DIR --source=- --nbest=4  < in.txt    # number ||| text ||| score
  python eval.py --workdir=DIR --source=FILE --reference=FILE --score   # how likely is each line
  python eval.py --workdir=DIR --checkpoint=all                  # every checkpoint that is kept
  python eval.py --workdir=DIR --ensemble=DIR2,DIR3              # their mean probabilities

Translations come in the order and number of the input's lines. Scores are printed, and
written to DIR/eval/ or to --results=FOLDER, those of each sentence too;
transformer/inference/compare.py holds them against those of other runs.
"""

import dataclasses
import functools
import hashlib
import itertools
import os
import stat
import sys
import time
import webbrowser
from pathlib import Path

from absl import flags, logging

from transformer import command_line, files, scoring
from transformer.data.sources import open_corpus
from transformer.data.text_files import STANDARD_INPUT, iterate_lines, read_lines
from transformer.errors import UserError
from transformer.inference import results
from transformer.training import run_directory

_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_SPLIT = flags.DEFINE_string('split', None, 'test, valid, train, or a split or prefix of the '
                             'data by its own name. The default without --source is test.')
_SOURCE = flags.DEFINE_string('source', None, 'A file to translate, or - for standard input.')
_REFERENCE = flags.DEFINE_multi_string('reference', [], 'A file of translations to score '
                                       'against; may be given more than once.')
_CHECKPOINT, _AVERAGE = command_line.define_checkpoint(
    'best, latest, a step, or all, which scores one after the other.')
_OUTPUT = flags.DEFINE_string('output', None, 'Where translations go, or - for standard output.')
_RESULTS = flags.DEFINE_string('results', None, 'The folder where scores go; default: eval/ in the '
                               'directory of the run.')
_BATCH_SIZE = flags.DEFINE_integer('batch_size', None, 'Sentences that are translated together; '
                                   'default: the run\'s config.')
_BEAM_SIZE = flags.DEFINE_integer('beam_size', None, 'Beams; default: the run\'s config.')
_ALPHA = flags.DEFINE_float('alpha', None, 'Length penalty; default: the run\'s config.')
_SAMPLE = flags.DEFINE_bool('sample', None, 'Draw translations rather than search: one of each '
                            'sentence, or the best by score of --beam_size=W; default: the '
                            'run\'s config.')
_TEMPERATURE = flags.DEFINE_float('temperature', None, 'Divides log-probabilities before a token '
                                  'is drawn; default: the run\'s config.')
_TOP_K = flags.DEFINE_integer('top_k', None, 'Draw from the k likeliest tokens, 0 is all; '
                              'default: the run\'s config.')
_TOP_P = flags.DEFINE_float('top_p', None, 'Draw from the fewest tokens whose probabilities reach '
                            'this together, 1 is all; default: the run\'s config.')
_SEED = flags.DEFINE_integer('seed', None, 'What is drawn is a function of it, of the sentence '
                             'and of its line; default: the run\'s config.')
_EXAMPLES = flags.DEFINE_integer('examples', 0, 'Print this many translations beside their '
                                 'references, taken evenly from the text.')
_NBEST = flags.DEFINE_integer('nbest', 1, 'Give this many translations of each sentence, with '
                              'their scores, as lines of number ||| text ||| score.')
_SCORE = flags.DEFINE_bool('score', False, 'Translate nothing, but give the log-probability of '
                           'each line of --reference, and how many tokens it has.')
_ENSEMBLE = flags.DEFINE_list('ensemble', [], 'Runs whose probabilities are averaged with '
                              'those of --workdir, from their best checkpoints.')
_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Where the data lies now, if it has moved.')

# Lines of a pipe that may be translated together, so that they are sorted by length.
_BATCHES_TOGETHER = 16


def main(_):
  """Wires flags to a run."""
  _check_flags()
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.inference.lines import as_lines, write_lines
  from transformer.inference.translate import Translator
  from transformer.run import checkpoints_of, load_ensemble, load_run, translate_with
  from transformer.training.mesh import sentence_sharding
  every = _CHECKPOINT.value == 'all'
  checkpoints = checkpoints_of(_WORKDIR.value) if every else [_CHECKPOINT.value]
  runs = (load_run(_WORKDIR.value, each, _AVERAGE.value, _BATCH_SIZE.value)
          for each in checkpoints)
  run = next(runs)
  members = load_ensemble(run, _ENSEMBLE.value)
  decoding = _decoding(run.config)
  models = [member.model for member in members]
  translator = functools.partial(
      Translator, models if len(models) > 1 else run.model, run.vocabulary,
      max_length=run.config.data.max_length, seed=decoding.seed)
  if _is_live():
    _translate_as_it_comes(members, translator, decoding.config)
    return
  text = _read(run.config.data)
  if text.references and not text.sources:
    raise UserError(f'there is nothing to score; {_SOURCE.value} is empty')
  if _SCORE.value:
    _score(members, text)
    return
  folder = scoring.writable_folder(_WORKDIR.value, _RESULTS.value) if text.references else None
  translate = translator(decoding.config, nbest=_NBEST.value,
                         rows=sentence_sharding(run.mesh, decoding.config.batch_size))
  # Standard output belongs to the translations if they go there.
  people = sys.stderr if _OUTPUT.value == '-' else sys.stdout
  rows = []
  for scored in itertools.chain([run], runs):
    place = results.Place(folder, text.name, results.describe(scored.steps, decoding))
    if _RESULTS.value and folder:
      place.check_own(str(scored.workdir.resolve()))
    started = time.perf_counter()
    answers = translate_with([scored, *members[1:]], translate, text.sources)
    seconds = time.perf_counter() - started
    _warn_of_cut([answer.cut for answer in answers], run)
    if output := _OUTPUT.value or (None if text.references else '-'):
      write_lines(as_lines(answers, _NBEST.value), output)
    if text.references:
      scoring.show_examples(text, answers, _EXAMPLES.value, people)
      rows.append(scoring.report(place, scored, text, decoding, answers, seconds, people))
  if every:
    scoring.tell_table(folder, text.name, rows)


def _check_flags():
  """Refuses what cannot be, before anything is read."""
  if not _WORKDIR.value:
    raise UserError('--workdir=DIR is needed, the directory of a run')
  command_line.check_named(_SOURCE, _SPLIT, _OUTPUT, _RESULTS, _DATA_DIR)
  if _SOURCE.value and _SPLIT.value:
    raise UserError('--split and --source exclude each other')
  if STANDARD_INPUT in _REFERENCE.value:
    raise UserError('--reference must name a file; standard input is for --source')
  if _REFERENCE.value and not _SOURCE.value:
    raise UserError('--reference needs --source; a split brings its own')
  command_line.check_at_least(1, _AVERAGE)
  if _OUTPUT.value and _OUTPUT.value != '-':
    output = Path(_OUTPUT.value).expanduser()
    command_line.check_file('output', output)
    command_line.check_not_read('output', output, [
        each for each in (_SOURCE.value, *_REFERENCE.value) if each], _WORKDIR.value)
  if _SCORE.value and len(_REFERENCE.value) != 1:
    raise UserError('--score needs --source=FILE and one --reference=FILE')
  if _CHECKPOINT.value == 'all' and (_OUTPUT.value or _SCORE.value or _ENSEMBLE.value
                                     or _AVERAGE.value > 1
                                     or (_SOURCE.value and not _REFERENCE.value)):
    raise UserError('--checkpoint=all gives a table of scores; leave out --output, --score, '
                    '--ensemble, --average, and --source without --reference')


def _is_live() -> bool:
  """Whether lines are typed, or come out of a pipe, so that nobody should wait for the last one."""
  if _SOURCE.value != STANDARD_INPUT or _REFERENCE.value or (_OUTPUT.value or '-') != '-':
    return False
  try:
    return not stat.S_ISREG(os.fstat(0).st_mode)
  except OSError as error:
    raise UserError('--source=- is standard input, which is closed; give it something, or name a '
                    'file') from error


def _translate_as_it_comes(members, translator, decode):
  """Answers each line when it comes."""
  from transformer.inference import prompt
  from transformer.inference.lines import as_lines, write_lines
  from transformer.run import translate_with
  from transformer.training.mesh import sentence_sharding
  run = members[0]
  if sys.stdin.isatty() and sys.stdout.isatty():
    import readline  # noqa: F401  So that what is typed can be edited, and comes again.
    sys.stdout.reconfigure(encoding='utf-8', newline='\n')
    print(f'{_WORKDIR.value}, step {run.steps[-1]}: a line is translated; :help tells more')
    prompt.converse(
        functools.partial(input, '> '), print,
        lambda decode, nbest: functools.partial(translate_with, members,
                                                translator(decode, nbest=nbest)),
        decode, _NBEST.value, functools.partial(_show_attention, run))
    return
  translate = translator(decode, rows=sentence_sharding(run.mesh, decode.batch_size),
                         nbest=_NBEST.value)
  cut = []

  def write(first, answers):
    cut.extend(answer.cut for answer in answers)
    write_lines(as_lines(answers, _NBEST.value, first), '-')

  # Not closed: after Ctrl-C, that would wait for the thread that waits for the next line.
  file = open(0, 'rb', closefd=False)  # noqa: SIM115
  prompt.stream(iterate_lines(file, 'standard input'),
                functools.partial(translate_with, members, translate), write,
                decode.batch_size * _BATCHES_TOGETHER)
  _warn_of_cut(cut, run)


def _show_attention(run, source: str, translation: str) -> str:
  """Writes the page of a sentence, opens it where there is a screen, and says where it is."""
  from transformer.inference.attention_maps import Attender
  from transformer.inference.attention_page import attention_page
  length = run.config.data.max_length
  maps = Attender(run.model, run.vocabulary, length, length + run.config.decode.max_extra_length)(
      run.params, [source], [translation])
  folder = _RESULTS.value or os.path.join(_WORKDIR.value, run_directory.EVALUATIONS)
  path = Path(folder).expanduser() / 'attention.html'
  files.write(path, attention_page(maps, f'{run.workdir.name}, step {run.steps[-1]}', [1]))
  # Without a screen it would be a browser in this very terminal.
  if sys.platform == 'darwin' or os.environ.keys() & {'DISPLAY', 'WAYLAND_DISPLAY'}:
    webbrowser.open(path.resolve().as_uri())
  return f'open {path} in a browser'


def _warn_of_cut(cut, run):
  """Tells how many sources were; of each it is said whether."""
  if any(cut):
    logging.warning('%d of %d sources were longer than data.max_length=%d tokens and were cut',
                    sum(cut), len(cut), run.config.data.max_length)


def _score(members, text):
  """Prints how likely each target is; nan where it was too long."""
  from transformer.inference.forced import score_pairs
  from transformer.inference.lines import write_lines
  from transformer.run import check_finite
  run = members[0]
  longest = run.config.data.max_length
  found = score_pairs([each.model for each in members], [each.params for each in members],
                      run.vocabulary, text.sources, text.references[0],
                      (longest, longest + run.config.decode.max_extra_length),
                      run.config.decode.batch_size)
  log_probs = [each.log_prob for each in found]
  check_finite(members, (each or 0.0 for each in log_probs))
  write_lines([('nan' if each is None else f'{each:.6f}') + f'\t{tokens}'
               for each, (_, tokens) in zip(log_probs, found, strict=True)], _OUTPUT.value or '-')


def _decoding(config) -> results.Decoding:
  """How to decode: as the flags say, or else the run's config."""
  changes = {flag.name: flag.value
             for flag in (_BEAM_SIZE, _ALPHA, _SAMPLE, _TEMPERATURE, _TOP_K, _TOP_P)
             if flag.value is not None}
  # The run's beams are for its search; the best of so many draws would be no plain sample.
  if _SAMPLE.value and not config.decode.sample:
    changes.setdefault('beam_size', 1)
  decode = dataclasses.replace(config.decode, **changes)
  for flag in (_TEMPERATURE, _TOP_K, _TOP_P, _SEED):
    if flag.value is not None and not decode.sample:
      raise UserError(f'--{flag.name} needs --sample; without it nothing is drawn')
  seed = config.seed if _SEED.value is None else _SEED.value
  dataclasses.replace(config, seed=seed)  # The config knows what it may be.
  return results.Decoding(decode, seed, _ENSEMBLE.value)


def _read(data) -> scoring.Text:
  """The text to translate."""
  if _SOURCE.value:
    references = [read_lines(path) for path in _REFERENCE.value]
    sources = read_lines(_SOURCE.value)
    for path, lines in zip(_REFERENCE.value, references, strict=True):
      if len(lines) != len(sources):
        raise UserError(f'source and reference must have a line for each other; {_SOURCE.value} '
                        f'has {len(sources)} lines, {path} has {len(lines)}')
    name = 'stdin' if _SOURCE.value == STANDARD_INPUT else Path(_SOURCE.value).name
    # Files of one name in two folders are different texts.
    text = '\n'.join(itertools.chain(sources, *references))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return scoring.Text(f'{name}.{digest[:8]}', sources, references)
  if _DATA_DIR.value:
    data = dataclasses.replace(data, dir=_DATA_DIR.value)
  asked = _SPLIT.value or 'test'
  split = {'test': data.test, 'valid': data.valid, 'train': data.train[0]}.get(asked, asked)
  if _OUTPUT.value and data.source == 'text':
    command_line.check_not_read('output', Path(_OUTPUT.value).expanduser(), [
        Path(data.dir, f'{split}.{language}')
        for language in (data.source_language, data.target_language)])
  corpus = open_corpus(data, split, dir_flag=f'--{_DATA_DIR.name}')
  for note in corpus.notes:
    logging.warning('%s', note)
  sources, references = (list(side) for side in zip(*corpus[:], strict=True))
  return scoring.Text(split.replace('/', '_'), sources, [references])


if __name__ == '__main__':
  command_line.run(main)
