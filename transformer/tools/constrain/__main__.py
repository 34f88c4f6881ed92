r"""Translates with words that must appear, and without words that must not.

  python -m transformer.tools.constrain --workdir=RUN --source=FILE --require=FILE2   # in line n
  python -m transformer.tools.constrain --workdir=RUN --source=FILE --avoid=FILE3     # in no line
  python -m transformer.tools.constrain --workdir=RUN --require=FILE2                 # a split

Translations go to standard output or to --output, and are scored if there are references; results
lie beside those of eval.py. Flags that both commands have mean the same.
"""

import dataclasses
import sys
import time
from pathlib import Path

from absl import flags

from transformer.commands import prefix_flags, shared_flags
from transformer.data.text.text_files import STANDARD_INPUT, read_lines
from transformer.errors import UserError
from transformer.evaluation import report, results, texts
from transformer.runs import run_directory
from transformer.system import command_line, outputs
from transformer.system.progress import progress_bar

_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_REQUIRE = flags.DEFINE_string('require', None, 'A file with a line for each of the source: words '
                               'and phrases, with tabs between them, that its translation must '
                               'contain.')
_AVOID = flags.DEFINE_string('avoid', None, 'A file of words and phrases, one a line, that must '
                             'not appear in translations.')
_PREFIXES = prefix_flags.define_prefixes()
_SPLIT = flags.DEFINE_string('split', None, 'test, valid, train, or a split or prefix of the data '
                             'by its own name. Without --source, the default is test.')
_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Where the data lies now, if it has moved.')
_SOURCE = flags.DEFINE_string('source', None, 'A file to translate, or - for standard input.')
_REFERENCE = flags.DEFINE_multi_string('reference', [], 'A file of translations to score '
                                       'against; may be given more than once.')
_OUTPUT = flags.DEFINE_string('output', None, 'Where translations go, or - for standard output.')
_RESULTS = flags.DEFINE_string('results', None, 'The folder where scores go; default: eval/ in the '
                               'directory of the run.')
_CHECKPOINT, _AVERAGE = shared_flags.define_checkpoint()
_ENSEMBLE = flags.DEFINE_list('ensemble', [], 'Runs whose probabilities are averaged with those '
                              'of --workdir.')
_BEAM_SIZE, _ALPHA = shared_flags.define_search()
_BATCH_SIZE = flags.DEFINE_integer('batch_size', None, 'Sentences that are translated together; '
                                   'default: the run\'s config.')
_NBEST = flags.DEFINE_integer('nbest', 1, 'Give this many translations of each sentence, with '
                              'their scores, as lines of number ||| text ||| score.')
_SAMPLE = flags.DEFINE_bool('sample', None, 'Draw translations rather than search; not with '
                            '--require; default: the run\'s config.')
_SEED = flags.DEFINE_integer('seed', None, 'The seed of the draws; default: the run\'s config.')


def main(_):
  """Wires flags to a run, and translates."""
  _check_flags()
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.decoding.ensemble import load_ensemble, make_translator, translate_with
  from transformer.decoding.lines import as_lines, write_lines
  from transformer.decoding.translator import warn_of_cut
  from transformer.runs.loading import load_run
  from transformer.tools.constrain.words import Words, warn_of_lacking
  run = load_run(_WORKDIR.value, _CHECKPOINT.value, _AVERAGE.value, _BATCH_SIZE.value)
  others = run_directory.split_runs(','.join(_ENSEMBLE.value)) if _ENSEMBLE.value else []
  members = load_ensemble(run, others, 'latest' if _CHECKPOINT.value == 'latest' else 'best',
                          _AVERAGE.value)
  decoding = _decoding(members)
  text, prefixes = _PREFIXES.read(_read_text(run.config.data))
  required = (texts.read_for_each('require', _REQUIRE.value, text.sources) if _REQUIRE.value
              else [])
  phrases = [[phrase.strip() for phrase in line.split('\t')] for line in required]
  avoided = _read_avoided()
  constraint = Words(run.vocabulary.target, phrases, avoided, prefixes)
  decoding = decoding._replace(constraints={
      'prefix': prefixes, 'require': ['\t'.join(filter(None, line)) for line in phrases],
      'avoid': avoided})
  folder = report.writable_folder(_WORKDIR.value, _RESULTS.value) if text.references else None
  place = results.Place(folder, text.name, results.describe(run.steps, decoding))
  place.check_own(run.workdir, text.digest)
  translate = make_translator(members, decoding.config, decoding.seed, _NBEST.value)
  started = time.perf_counter()
  with progress_bar(len(text.sources), description='translating: ') as bar:
    answers = translate_with(members, translate, text.sources, constraint=constraint,
                             progress=bar.update)
  seconds = time.perf_counter() - started
  warn_of_cut([answer.cut for answer in answers], run.config.data.max_length)
  warn_of_lacking([[line for line, _ in answer.nbest] for answer in answers], phrases)
  try:
    if output := _OUTPUT.value or (None if text.references else '-'):
      write_lines(as_lines(answers, _NBEST.value, drawn=decoding.config.sample), output)
  finally:  # Translations that do not fit onto a disk can still be scored.
    if text.references:
      # Standard output belongs to the translations if they go there.
      from transformer.evaluation import scores  # Translating needs no sacreBLEU.
      stages = scores.evaluate(text, answers, seconds, decoding.config.bleu_tokenize,
                               run.config.data.target_language)
      report.report(place, run, text, decoding, report.Scored(stages, seconds, lambda _: []),
                    sys.stderr if _OUTPUT.value == '-' else sys.stdout)


def _check_flags():
  """Refuses flags that exclude or need each other, before anything is read."""
  if not _WORKDIR.value:
    raise UserError('--workdir=DIR is needed, the directory of a run')
  shared_flags.check_named(_REQUIRE, _AVOID, _SOURCE, _SPLIT, _OUTPUT, _RESULTS, _ENSEMBLE,
                           _DATA_DIR)
  if not (_REQUIRE.value or _AVOID.value):
    raise UserError('--require=FILE or --avoid=FILE is needed; eval.py translates without them')
  if _SOURCE.value and _SPLIT.value:
    raise UserError('--split and --source exclude each other')
  if _REFERENCE.value and not _SOURCE.value:
    raise UserError('--reference needs --source; a split brings its own')
  read = [_REQUIRE.value, _AVOID.value, _PREFIXES.file.value, *_REFERENCE.value]
  if STANDARD_INPUT in read:
    raise UserError('only --source can be standard input; name files by --require, --avoid, '
                    '--prefix and --reference')
  _PREFIXES.check(_SOURCE.value)
  shared_flags.check_at_least(1, _AVERAGE, _NBEST)
  if _OUTPUT.value and _OUTPUT.value != '-':
    outputs.check_file('output', path := Path(_OUTPUT.value).expanduser())
    outputs.check_not_read('output', path, [path for path in [_SOURCE.value, *read] if path]
                           + run_directory.record_files(_WORKDIR.value))
  unscored = _SOURCE.value and not _REFERENCE.value
  if _RESULTS.value and unscored:
    raise UserError(f'--results={_RESULTS.value} is for scores, and nothing is scored here; leave '
                    f'it out; --output=FILE takes translations')
  if _NBEST.value > 1 and not (_OUTPUT.value or unscored):
    raise UserError(f'--nbest={_NBEST.value} gives lists of translations; add --output=FILE or '
                    f'--output=-')


def _decoding(members) -> results.Decoding:
  """Returns how to decode: by the flags that are given, and else by the first run's config."""
  config = members[0].config
  changes = shared_flags.given(_BEAM_SIZE, _ALPHA, _SAMPLE)
  if _SAMPLE.value and not config.decode.sample:
    # The run's beam size is for its search; the best of several samples is not a plain sample.
    changes.setdefault('beam_size', 1)
  decode = dataclasses.replace(config.decode, **changes)
  if _REQUIRE.value and decode.sample:
    raise UserError('--require needs a search, which keeps places for the words; leave out '
                    '--sample, or give --nosample')
  if _SEED.value is not None and not decode.sample:
    raise UserError('--seed needs --sample; without it nothing is drawn')
  if _NBEST.value > decode.beam_size:
    raise UserError(f'--nbest={_NBEST.value} needs as many beams, and there are '
                    f'{decode.beam_size}; give --beam_size={_NBEST.value}')
  seed = config.seed if _SEED.value is None else _SEED.value
  dataclasses.replace(config, seed=seed)  # The config checks it.
  others = [results.Member(str(member.workdir.resolve()), member.steps) for member in members[1:]]
  return results.Decoding(decode, seed, others)


def _read_text(data) -> texts.Text:
  """Reads the file, or the split of the run's data, that is to be translated."""
  if _SOURCE.value:
    return texts.read_files(_SOURCE.value, _REFERENCE.value)
  if _DATA_DIR.value:
    data = dataclasses.replace(data, dir=_DATA_DIR.value)
  if not (split := texts.split_name(data, _SPLIT.value or 'test')):
    raise UserError('the config of this run names no data.test; give --split=NAME, or '
                    '--source=FILE')
  if _OUTPUT.value:
    outputs.check_not_read('output', Path(_OUTPUT.value).expanduser(),
                           texts.split_files(data, split))
  return texts.read_split(data, split, '--data_dir')


def _read_avoided() -> list[str]:
  """Returns the words and phrases to avoid; none without the flag."""
  if not _AVOID.value:
    return []
  avoided = [line.strip() for line in read_lines(_AVOID.value) if line.strip()]
  if not avoided:
    raise UserError(f'--avoid must name a file with words or phrases, one a line; {_AVOID.value} '
                    f'has none')
  return avoided


def start():
  """Runs `main` with the flags of the command line; `attention-constrain` calls it."""
  command_line.run(main)


if __name__ == '__main__':
  start()
