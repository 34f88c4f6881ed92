"""Scores a run on a split of its data, or translates text with it.

  python eval.py --workdir=DIR                                   # its test split
  python eval.py --workdir=DIR --split=test,valid --beam_size=1
  python eval.py --workdir=DIR --source=FILE --reference=FILE
  python eval.py --workdir=DIR --source=-                        # a prompt; in a pipe, a stream
  python eval.py --workdir=DIR --source=- --output=-  < in.txt   # only translate
  python eval.py --workdir=DIR --source=- --sample --seed=1  < in.txt
  python eval.py --workdir=DIR --source=- --nbest=4  < in.txt    # number ||| text ||| score
  python eval.py --workdir=DIR --metric=my_metrics:comet         # a metric of your own, too
  python eval.py --workdir=DIR --source=FILE --prefix=FILE2      # each begins with a line of FILE2
  python eval.py --workdir=DIR --source=FILE --reference=FILE --score   # how likely is each line
  python eval.py --workdir=DIR --source=FILE --reference=FILE --score --tokens   # and each piece
  python eval.py --workdir=DIR --checkpoint=all                  # every checkpoint that is kept
  python eval.py --workdir=DIR --ensemble=DIR2,DIR3              # their mean probabilities

Translations come in the order and number of the input's lines. Scores are printed, and
written to DIR/eval/ or to --results=FOLDER, those of each sentence too;
python -m transformer.tools.compare holds them against those of other runs.
"""

import dataclasses
import itertools
import sys
import time
from pathlib import Path

from absl import flags, logging

if __name__ == '__main__':  # With PYTHONSAFEPATH=1, Python does not look beside the script.
  sys.path.insert(0, str(Path(__file__).resolve().parent))

from transformer.commands import prefix_flags, shared_flags
from transformer.data.text.text_files import STANDARD_INPUT
from transformer.errors import UserError
from transformer.evaluation import report, results, texts
from transformer.runs import run_directory
from transformer.system import command_line, outputs
from transformer.system.progress import progress_bar

_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_SPLIT = flags.DEFINE_list('split', [], 'test, valid, train, or a split or prefix of the data by '
                           'its own name; or several, with commas between them. Without --source, '
                           'the default is test.')
_SOURCE = flags.DEFINE_string('source', None, 'A file to translate, or - for standard input.')
_REFERENCE = flags.DEFINE_multi_string('reference', [], 'A file of translations to score '
                                       'against; may be given more than once.')
_CHECKPOINT, _AVERAGE = shared_flags.define_checkpoint(
    'best, latest, a step, or all, which scores one after the other.')
_OUTPUT = flags.DEFINE_string('output', None, 'Where translations go, or - for standard output.')
_RESULTS = flags.DEFINE_string('results', None, 'The folder where scores go; default: eval/ in the '
                               'directory of the run.')
_BATCH_SIZE = flags.DEFINE_integer('batch_size', None, 'Sentences that are translated together; '
                                   'default: the run\'s config.')
_BEAM_SIZE, _ALPHA = shared_flags.define_search()
_DTYPE = flags.DEFINE_string('dtype', None, 'Type of activations in a search: trained, float32 or '
                             'bfloat16, which is faster on some processors; default: the '
                             'run\'s config.')
_BLEU_TOKENIZE = flags.DEFINE_string('bleu_tokenize', None, 'sacreBLEU\'s tokenizer, such as '
                                     'ja-mecab or zh; default: the run\'s config.')
_SAMPLE = flags.DEFINE_bool('sample', None, 'Draw translations rather than search: one of each '
                            'sentence, or the best by score of --beam_size=W; default: the '
                            'run\'s config.')
_TEMPERATURE = flags.DEFINE_float('temperature', None, 'Divides log-probabilities before a token '
                                  'is drawn; default: the run\'s config.')
_TOP_K = flags.DEFINE_integer('top_k', None, 'Draw from the k likeliest tokens, 0 is all; '
                              'default: the run\'s config.')
_TOP_P = flags.DEFINE_float('top_p', None, 'Draw from the fewest tokens whose probabilities reach '
                            'this together, 1 is all; default: the run\'s config.')
_SEED = flags.DEFINE_integer('seed', None, 'The seed of the draws, which also depend on the '
                             'sentence and its line; default: the run\'s config.')
_EXAMPLES = flags.DEFINE_integer('examples', 0, 'Print this many translations beside their '
                                 'references, taken evenly from the text.')
_NBEST = flags.DEFINE_integer('nbest', 1, 'Give this many translations of each sentence, with '
                              'their scores, as lines of number ||| text ||| score.')
_METRIC = flags.DEFINE_multi_string('metric', [], 'A metric of your own, as MODULE:FUNCTION; may '
                                    'be given more than once; see docs/scoring.md.')
_TER = flags.DEFINE_bool('ter', None, 'Compute TER even of lines with more than 100 words, each of '
                         'which takes seconds; --noter leaves it out; default: if there are none.')
_PROTOCOLS = flags.DEFINE_bool('protocols', False, 'Print BLEU by the other usual protocols, its '
                               'precisions, and the cost of training, too; the results have them '
                               'in any case.')
_SCORE = flags.DEFINE_bool('score', False, 'Translate nothing, but give the log-probability of '
                           'each line of --reference, and how many tokens it has.')
_TOKENS = flags.DEFINE_bool('tokens', False, 'With --score: a JSON object for each line, with the '
                            'log-probability of each of its pieces.')
_PREFIXES = prefix_flags.define_prefixes()
_ENSEMBLE = flags.DEFINE_list('ensemble', [], 'Runs whose probabilities are averaged with '
                              'those of --workdir. --average and --checkpoint=latest apply to all '
                              'runs; a step applies to --workdir alone, and the others use their '
                              'best.')
_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Where the data lies now, if it has moved.')
_DECODE_FLAGS = (_BEAM_SIZE, _ALPHA, _DTYPE, _SAMPLE, _TEMPERATURE, _TOP_K, _TOP_P, _BLEU_TOKENIZE)


def main(_):
  """Wires flags to a run."""
  _check_flags()
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.decoding import stream
  from transformer.decoding.ensemble import load_ensemble, make_translator
  from transformer.evaluation.own_metrics import load_metric
  own_metrics = list(map(load_metric, _METRIC.value))
  failed: dict[str, UserError] = {}
  runs = _runs(failed)
  run = next(runs, None)
  if run is None:
    raise next(iter(failed.values()))
  others = run_directory.split_runs(','.join(_ENSEMBLE.value)) if _ENSEMBLE.value else []
  members = load_ensemble(run, others, 'latest' if _CHECKPOINT.value == 'latest' else 'best',
                          _AVERAGE.value)
  decoding = _decoding(members)
  if _only_translates_standard_input() and stream.arrives_live():
    _translate_live(members, decoding)
    return
  text, *more = _read_texts(run.config.data)
  text, prefixes = _PREFIXES.read(text)
  if _SCORE.value:
    _score(members, text)
    return
  if text.references:
    from transformer.evaluation.metrics import check_tokenizer
    check_tokenizer(decoding.config.bleu_tokenize)
    for doubt in dataclasses.replace(run.config, decode=decoding.config).doubts_of_bleu():
      logging.warning('%s', doubt)
  folder = report.writable_folder(_WORKDIR.value, _RESULTS.value) if text.references else None
  translate = make_translator(members, decoding.config, decoding.seed, _NBEST.value)
  decoding = decoding._replace(constraints={'prefix': prefixes})
  tables = [_table(run, each, decoding, folder) for each in (text, *more)]
  for table in tables if _CHECKPOINT.value == 'all' else ():
    table.place.check_own(run.workdir, table.text.digest)
  for scored in itertools.chain([run], runs):
    for table in tables:
      try:
        table.rows.append(_translate([scored, *members[1:]], translate, table.text, decoding,
                                     folder, own_metrics))
      except UserError as error:
        _go_on_without(str(scored.steps[-1]), error, failed)
  for table in tables if _CHECKPOINT.value == 'all' else ():
    report.print_table(table, run, decoding)
  if failed:
    raise UserError(f'{len(failed)} checkpoints could not be scored, as the warnings above say; '
                    f'the tables have all other scores')


def _runs(failed: dict[str, UserError]):
  """Yields the run at each checkpoint; the errors of others are added to `failed`."""
  from transformer.runs.loading import checkpoints_of, load_run
  every = _CHECKPOINT.value == 'all'
  for checkpoint in checkpoints_of(_WORKDIR.value) if every else [_CHECKPOINT.value]:
    try:
      run = load_run(_WORKDIR.value, checkpoint, _AVERAGE.value, _BATCH_SIZE.value)
    except UserError as error:
      _go_on_without(checkpoint, error, failed)
    else:
      yield run


def _go_on_without(checkpoint: str, error: UserError, failed: dict[str, UserError]):
  """Warns of scores that the tables of all checkpoints lack; without tables, raises the error."""
  if _CHECKPOINT.value != 'all':
    raise error
  logging.warning('%s', error)
  failed[checkpoint] = error


def _table(run, text, decoding, folder) -> report.Table:
  """Returns the empty table of all checkpoints."""
  how = results.describe(run.steps, decoding)
  del how['step']
  return report.Table(results.Place(folder, f'{text.name}.all', how), text, [])


def _translate_live(members, decoding):
  """Translates the lines of a pipe or a terminal as they arrive."""
  from transformer.decoding import prompt, stream
  from transformer.decoding.ensemble import make_translator
  if _is_at_a_terminal():
    if _PREFIXES.column.value:
      raise UserError('--prefix_column is for files and pipes; at this prompt, :prefix WORDS says '
                      'what translations begin with')
    prompt.run_prompt(members, decoding.config, decoding.seed, _NBEST.value)
  else:
    translate = make_translator(members, decoding.config, decoding.seed, _NBEST.value)
    stream.translate_pipe(members, translate, _NBEST.value, _PREFIXES.column.value,
                          decoding.config.sample)


def _score(members, text):
  """Writes the likelihood of each reference."""
  from transformer.decoding.ensemble import score_with
  from transformer.decoding.lines import score_lines, token_lines, write_lines
  targets = text.references[0]
  as_lines = token_lines if _TOKENS.value else score_lines
  likelihoods = score_with(members, text.sources, targets, _TOKENS.value)
  write_lines(as_lines(likelihoods), _OUTPUT.value or '-')


def _translate(members, translate, text, decoding, folder, own_metrics):
  """Translates the text; writes the translations, and reports scores if there are references."""
  from transformer.decoding.constraint import FREE
  from transformer.decoding.ensemble import translate_with
  from transformer.decoding.lines import as_lines, write_lines
  from transformer.decoding.prefixes import Prefixes
  from transformer.decoding.translator import warn_of_cut
  run = members[0]
  place = results.Place(folder, text.name, results.describe(run.steps, decoding))
  place.check_own(run.workdir, text.digest)
  started = time.perf_counter()
  prefixes = decoding.constraints['prefix']
  constraint = Prefixes(prefixes) if prefixes else FREE
  with progress_bar(len(text.sources), description='translating: ') as bar:
    answers = translate_with(members, translate, text.sources, constraint=constraint,
                             progress=bar.update)
  seconds = time.perf_counter() - started
  warn_of_cut([answer.cut for answer in answers], run.config.data.max_length)
  row = None
  try:
    if output := _OUTPUT.value or (None if text.references else '-'):
      write_lines(as_lines(answers, _NBEST.value, drawn=decoding.config.sample), output)
  finally:  # Translations that do not fit onto a disk can still be scored.
    if text.references:
      # Standard output belongs to the translations if they go there.
      people = sys.stderr if _OUTPUT.value == '-' else sys.stdout
      from transformer.evaluation import scores  # Translating needs no sacreBLEU.
      scored = report.Scored(scores.evaluate(
          text, answers, seconds, decoding.config.bleu_tokenize, run.config.data.target_language,
          own_metrics, _TER.value), seconds,
          scores.protocol_lines if _PROTOCOLS.value else lambda _: [], cost=_PROTOCOLS.value)
      row = report.report(place, run, text, decoding, scored, people)
      report.show_examples(text, answers, _EXAMPLES.value, people)
  return row


def _check_flags():
  """Refuses flags that exclude or need each other, before anything is read."""
  if not _WORKDIR.value:
    raise UserError('--workdir=DIR is needed, the directory of a run')
  shared_flags.check_named(_SOURCE, _SPLIT, _OUTPUT, _RESULTS, _ENSEMBLE, _DATA_DIR)
  if _SOURCE.value and _SPLIT.value:
    raise UserError('--split and --source exclude each other')
  if len(_SPLIT.value) > 1 and (_OUTPUT.value or _PREFIXES.file.value):
    raise UserError(f'--split={",".join(_SPLIT.value)} names several texts, and --output and '
                    f'--prefix are for one; name one split')
  for name, paths in (('reference', _REFERENCE.value), ('prefix', [_PREFIXES.file.value])):
    if STANDARD_INPUT in paths:
      raise UserError(f'--{name} must name a file; standard input is for --source')
  if _REFERENCE.value and not _SOURCE.value:
    raise UserError('--reference needs --source; a split brings its own')
  shared_flags.check_at_least(1, _AVERAGE, _NBEST)
  shared_flags.check_at_least(0, _EXAMPLES)
  _PREFIXES.check(_SOURCE.value)
  if _SCORE.value and _PREFIXES.given:
    raise UserError('--score translates nothing; leave out --prefix and --prefix_column')
  read = [_SOURCE.value, _PREFIXES.file.value, *_REFERENCE.value]
  if _OUTPUT.value and _OUTPUT.value != '-':
    outputs.check_file('output', path := Path(_OUTPUT.value).expanduser())
    outputs.check_not_read('output', path, [each for each in read if each]
                           + run_directory.record_files(_WORKDIR.value))
  unscored = _SOURCE.value and not _REFERENCE.value
  for flag in (_METRIC, _EXAMPLES, _TER, _PROTOCOLS, _BLEU_TOKENIZE):
    if flag.value and unscored:
      raise UserError(f'--{flag.name} compares translations with references; give '
                      f'--reference=FILE')
  if _RESULTS.value and (unscored or _SCORE.value):
    raise UserError(f'--results={_RESULTS.value} is for scores, and nothing is scored here; leave '
                    f'it out; --output=FILE takes translations and likelihoods')
  if _DATA_DIR.value and _SOURCE.value:
    raise UserError(f'--data_dir={_DATA_DIR.value} is the folder of a split, and --source a file '
                    f'of its own; leave out one of them')
  if _NBEST.value > 1 and (_SCORE.value or not (_OUTPUT.value or unscored)):
    raise UserError(f'--nbest={_NBEST.value} gives lists of translations; add --output=FILE or '
                    f'--output=-, and leave out --score')
  if _SCORE.value and (searching := {
      **shared_flags.given(*_DECODE_FLAGS, _SEED),
      **{flag.name: flag.value for flag in (_EXAMPLES, _METRIC, _TER, _PROTOCOLS) if flag.value}}):
    raise UserError(f'--score searches for nothing and computes no BLEU; leave out '
                    f'--{next(iter(searching))}')
  if _TOKENS.value and not _SCORE.value:
    raise UserError('--tokens gives the log-probabilities of given translations; add --score')
  if _SCORE.value and len(_REFERENCE.value) != 1:
    raise UserError('--score needs --source=FILE and one --reference=FILE')
  if _CHECKPOINT.value == 'all' and (_OUTPUT.value or _SCORE.value or _ENSEMBLE.value
                                     or _AVERAGE.value > 1 or unscored):
    raise UserError('--checkpoint=all gives a table of scores; leave out --output, --score, '
                    '--ensemble, --average, and --source without --reference')


def _only_translates_standard_input() -> bool:
  """Returns whether standard input is translated to standard output, and not scored."""
  return (_SOURCE.value == STANDARD_INPUT and not _REFERENCE.value
          and (_OUTPUT.value or '-') == '-'
          and not _PREFIXES.file.value)


def _is_at_a_terminal() -> bool:
  return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def _decoding(members) -> results.Decoding:
  """Returns how to decode: by the flags that are given, and else by the first run's config."""
  config = members[0].config
  others = [results.Member(str(each.workdir.resolve()), each.steps) for each in members[1:]]
  changes = shared_flags.given(*_DECODE_FLAGS)
  if _SAMPLE.value and not config.decode.sample:
    # The run's beam size is for its search; the best of several samples is not a plain sample.
    changes.setdefault('beam_size', 1)
  decode = dataclasses.replace(config.decode, **changes)
  if _NBEST.value > decode.beam_size:
    raise UserError(f'--nbest={_NBEST.value} needs as many beams, and there are '
                    f'{decode.beam_size}; give --beam_size={_NBEST.value}')
  for flag in (_TEMPERATURE, _TOP_K, _TOP_P, _SEED):
    if flag.value is not None and not decode.sample:
      raise UserError(f'--{flag.name} needs --sample; without it nothing is drawn')
  changed = decode.bleu_tokenize != config.decode.bleu_tokenize
  seed = config.seed if _SEED.value is None else _SEED.value
  dataclasses.replace(config, seed=seed)  # The config checks it.
  return results.Decoding(decode, seed, others,
                          tokenize=decode.bleu_tokenize if changed else '')


def _read_texts(data) -> list[texts.Text]:
  if _SOURCE.value:
    return [texts.read_files(_SOURCE.value, _REFERENCE.value)]
  if _DATA_DIR.value:
    data = dataclasses.replace(data, dir=_DATA_DIR.value)
  names = [name for name in _SPLIT.value if name] or ['test']
  splits = dict.fromkeys(texts.split_name(data, name) for name in names)
  if not all(splits):
    raise UserError('the config of this run names no data.test; give --split=NAME, or '
                    '--source=FILE with --reference=FILE')
  if _OUTPUT.value:
    outputs.check_not_read('output', Path(_OUTPUT.value).expanduser(),
                           texts.split_files(data, *splits))
  return [texts.read_split(data, split, f'--{_DATA_DIR.name}') for split in splits]


def start():
  """Runs `main` with the flags of the command line; `attention-eval` calls it."""
  command_line.run(main)


if __name__ == '__main__':
  start()
