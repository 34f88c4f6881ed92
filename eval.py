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
written to DIR/eval/, those of each sentence too; transformer/inference/compare.py holds them
against those of other runs.
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

from transformer import command_line, files
from transformer.data.sources import open_corpus
from transformer.data.text_files import STANDARD_INPUT, iterate_lines, read_lines
from transformer.errors import UserError
from transformer.training import run_directory
from transformer.training.curves import draw_scores

_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_SPLIT = flags.DEFINE_string('split', None, 'test, valid, train, or a split or prefix of the '
                             'data by its own name. The default without --source is test.')
_SOURCE = flags.DEFINE_string('source', None, 'A file to translate, or - for standard input.')
_REFERENCE = flags.DEFINE_multi_string('reference', [], 'A file of translations to score '
                                       'against; may be given more than once.')
_CHECKPOINT, _AVERAGE = command_line.define_checkpoint(
    'best, latest, a step, or all, which scores one after the other.')
_OUTPUT = flags.DEFINE_string('output', None, 'Where translations go, or - for standard output.')
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
  if not _WORKDIR.value:
    raise UserError('--workdir=DIR is needed, the directory of a run')
  command_line.check_named(_SOURCE, _SPLIT, _OUTPUT, _DATA_DIR)
  if _SOURCE.value and _SPLIT.value:
    raise UserError('--split and --source exclude each other')
  if STANDARD_INPUT in _REFERENCE.value:
    raise UserError('--reference must name a file; standard input is for --source')
  if _REFERENCE.value and not _SOURCE.value:
    raise UserError('--reference needs --source; a split brings its own')
  command_line.check_at_least(1, _AVERAGE)
  if _OUTPUT.value and _OUTPUT.value != '-':
    command_line.check_file('output', Path(_OUTPUT.value).expanduser())
  if _SCORE.value and len(_REFERENCE.value) != 1:
    raise UserError('--score needs --source=FILE and one --reference=FILE')
  if _CHECKPOINT.value == 'all' and (_OUTPUT.value or _SCORE.value or _ENSEMBLE.value
                                     or _AVERAGE.value > 1
                                     or (_SOURCE.value and not _REFERENCE.value)):
    raise UserError('--checkpoint=all gives a table of scores; leave out --output, --score, '
                    '--ensemble, --average, and --source without --reference')
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.inference.translate import Translator
  from transformer.run import checkpoints_of, load_ensemble, load_run
  from transformer.training.mesh import sentence_sharding
  every = _CHECKPOINT.value == 'all'
  checkpoints = checkpoints_of(_WORKDIR.value) if every else [_CHECKPOINT.value]
  runs = (load_run(_WORKDIR.value, each, _AVERAGE.value) for each in checkpoints)
  run = next(runs)
  members = load_ensemble(run, _ENSEMBLE.value)
  decode, seed = _decoding(run.config)
  models = [member.model for member in members]
  translator = functools.partial(
      Translator, models if len(models) > 1 else run.model, run.vocabulary,
      max_length=run.config.data.max_length, seed=seed)
  if _is_live():
    _translate_as_it_comes(members, translator, decode)
    return
  sources, references, name = _read(run.config.data)
  evaluations = Path(_WORKDIR.value).expanduser() / run_directory.EVALUATIONS
  if references:
    if not sources:
      raise UserError(f'there is nothing to score; {_SOURCE.value} is empty')
    command_line.check_folder('workdir', evaluations)
  if _SCORE.value:
    _score(members, sources, references[0])
    return
  translate = translator(decode, rows=sentence_sharding(run.mesh, decode.batch_size),
                         nbest=_NBEST.value)
  results = []
  for scored in itertools.chain([run], runs):
    started = time.perf_counter()
    answers = translate(_params([scored, *members[1:]]), sources)
    seconds = time.perf_counter() - started
    _warn_of_cut([answer.cut for answer in answers], run)
    _put_out(answers, bool(references))
    if references:
      results.append(_report(scored, name, sources, references, answers, seconds, decode, seed))
  if every:
    _table(evaluations, name, results)


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
  from transformer.training.mesh import sentence_sharding
  run, params = members[0], _params(members)
  if sys.stdin.isatty() and sys.stdout.isatty():
    import readline  # noqa: F401  So that what is typed can be edited, and comes again.
    sys.stdout.reconfigure(encoding='utf-8', newline='\n')
    print(f'{_WORKDIR.value}, step {run.steps[-1]}: a line is translated; :help tells more')
    prompt.converse(
        functools.partial(input, '> '), print,
        lambda decode, nbest: functools.partial(translator(decode, nbest=nbest), params),
        decode, _NBEST.value, functools.partial(_show_attention, run))
    return
  translate = functools.partial(translator(
      decode, rows=sentence_sharding(run.mesh, decode.batch_size), nbest=_NBEST.value), params)
  cut = []

  def write(first, answers):
    cut.extend(answer.cut for answer in answers)
    _write_lines(_as_lines(answers, first), '-')

  # Not closed: after Ctrl-C, that would wait for the thread that waits for the next line.
  file = open(0, 'rb', closefd=False)  # noqa: SIM115
  prompt.stream(iterate_lines(file, 'standard input'), translate, write,
                decode.batch_size * _BATCHES_TOGETHER)
  _warn_of_cut(cut, run)


def _show_attention(run, source: str, translation: str) -> str:
  """Writes the page of a sentence, opens it where there is a screen, and says where it is."""
  from transformer.inference.attention_maps import Attender
  from transformer.inference.attention_page import attention_page
  length = run.config.data.max_length
  maps = Attender(run.model, run.vocabulary, length, length + run.config.decode.max_extra_length)(
      run.params, [source], [translation])
  path = Path(_WORKDIR.value).expanduser() / run_directory.EVALUATIONS / 'attention.html'
  files.write(path, attention_page(maps, f'{Path(_WORKDIR.value).name}, step {run.steps[-1]}', [1]))
  # Without a screen it would be a browser in this very terminal.
  if sys.platform == 'darwin' or os.environ.keys() & {'DISPLAY', 'WAYLAND_DISPLAY'}:
    webbrowser.open(path.resolve().as_uri())
  return f'open {path} in a browser'


def _params(members):
  """Of one run, or of each of an ensemble."""
  return members[0].params if len(members) == 1 else [member.params for member in members]


def _warn_of_cut(cut, run):
  """Tells how many sources were; of each it is said whether."""
  if any(cut):
    logging.warning('%d of %d sources were longer than data.max_length=%d tokens and were cut',
                    sum(cut), len(cut), run.config.data.max_length)


def _score(members, sources, targets):
  """Prints how likely each target is."""
  from transformer.inference.forced import score_pairs
  run = members[0]
  found = score_pairs([each.model for each in members], [each.params for each in members],
                      run.vocabulary, sources, targets, run.config.data.max_length,
                      run.config.decode.batch_size)
  _write_lines([f'{each.log_prob:.6f}\t{each.tokens}' for each in found], _OUTPUT.value or '-')


def _put_out(answers, scored: bool):
  """Writes translations where they were asked for; if they are not scored, to standard output."""
  output = _OUTPUT.value or (None if scored else '-')
  if output:
    _write_lines(_as_lines(answers, 0), output)


def _as_lines(answers, first: int) -> list[str]:
  """Translations, or n-best lists, as they are written; the first one's number comes too."""
  if _NBEST.value == 1:
    return [answer.text for answer in answers]
  return [f'{number} ||| {text} ||| {score:.6f}' for number, answer in enumerate(answers, first)
          for text, score in answer.nbest]


def _write_lines(lines, output: str):
  if output == '-':
    sys.stdout.reconfigure(encoding='utf-8', newline='\n')
    sys.stdout.writelines(line + '\n' for line in lines)
    sys.stdout.flush()
  else:
    path = Path(output).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(line + '\n' for line in lines), encoding='utf-8', newline='\n')


def _report(run, name: str, sources, references, answers, seconds: float, decode,
            seed: int) -> dict:
  """Scores translations, writes what is found, and prints the most of it."""
  from transformer.inference import evaluation  # Translating needs no sacreBLEU.
  result, sentences = evaluation.evaluate(sources, references, answers, seconds,
                                          decode.bleu_tokenize, run.config.data.target_language)
  result |= {
      'text': name, 'steps': run.steps, 'decode': dataclasses.asdict(decode),
      'seed': seed if decode.sample else None, 'ensemble': _ENSEMBLE.value,
      'commit': run_directory.commit(), 'command': sys.argv[1:]}
  how = _describe(decode, seed)
  if _ENSEMBLE.value:  # Several of one size are told apart.
    which = hashlib.sha256('\0'.join(_ENSEMBLE.value).encode(errors='surrogateescape')).hexdigest()
    how = {'ensemble': f'{1 + len(_ENSEMBLE.value)}.{which[:4]}', **how}
  steps = str(run.steps[-1]) + f'.average{len(run.steps)}' * (len(run.steps) > 1)
  stem = '.'.join([name, f'step{steps}', *(f'{key}{value}' for key, value in how.items())])
  folder = Path(_WORKDIR.value).expanduser() / run_directory.EVALUATIONS
  evaluation.write(folder, stem, result, sentences)
  # Standard output belongs to the translations if they go there.
  people = sys.stderr if _OUTPUT.value == '-' else sys.stdout
  for index in _spread(_EXAMPLES.value, len(sources)):
    print(f'  source       {sources[index]}\n  reference    {references[0][index]}\n'
          f'  translation  {answers[index].text}\n', file=people)
  print(f'{result["details"]}\n{result["signature"]}\n'
        f'{name}: BLEU {result["bleu"]:.2f}, {len(sources)} sentences in {seconds:.1f} s, '
        f'step {steps}, {", ".join(f"{key} {value}" for key, value in how.items())}; '
        f'also in {folder / stem}.json', file=people)
  print(*evaluation.in_words(result), sep='\n', file=people)
  return result


def _table(folder: Path, name: str, results):
  """Prints what each checkpoint scored, the best marked; writes it, and draws its BLEU."""
  rows = [{'step': each['steps'][-1],
           **{metric['name']: metric['score'] for metric in each['metrics']},
           'BLEU_interval_95': each['metrics'][0]['interval_95']} for each in results]
  best = max(rows, key=lambda row: row['BLEU'])
  files.write_json(folder / f'{name}.all.json', rows)
  draw_scores(name, [row['step'] for row in rows], [row['BLEU'] for row in rows],
              [row['BLEU_interval_95'] for row in rows], folder / f'{name}.all.svg')
  metrics = [each['name'] for each in results[0]['metrics']]
  print(f'\n{"step":>9}' + ''.join(f'{metric:>9}' for metric in metrics))
  for row in rows:
    print(f'{row["step"]:9}' + ''.join(f'{row[metric]:9.2f}' for metric in metrics)
          + '  *' * (row is best))
  print(f'also in {folder / name}.all.json and .svg')


def _decoding(config):
  """How to decode, and the seed: the flags', or else those of the run's config."""
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
  return decode, dataclasses.replace(config, seed=seed).seed  # The config knows what it may be.


def _describe(decode, seed: int) -> dict[str, str | int]:
  """What tells one way of decoding from another, for people and file names."""
  alpha = f'{decode.alpha:g}'
  if not decode.sample:
    return {'beam': decode.beam_size, 'alpha': alpha}
  return {'samples': decode.beam_size, 'alpha': alpha, 'temperature': f'{decode.temperature:g}',
          'top_k': decode.top_k, 'top_p': f'{decode.top_p:g}', 'seed': seed}


def _spread(count: int, total: int) -> list[int]:
  """Up to `count` indices, evenly from 0 … total − 1."""
  count = min(count, total)
  return [index * total // count for index in range(count)]


def _read(data):
  """The sentences to translate, their references, and a name for the pair."""
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
    return sources, references, f'{name}.{hashlib.sha256(text.encode()).hexdigest()[:8]}'
  if _DATA_DIR.value:
    data = dataclasses.replace(data, dir=_DATA_DIR.value)
  asked = _SPLIT.value or 'test'
  split = {'test': data.test, 'valid': data.valid, 'train': data.train[0]}.get(asked, asked)
  corpus = open_corpus(data, split, dir_flag=f'--{_DATA_DIR.name}')
  for note in corpus.notes:
    logging.warning('%s', note)
  sources, references = (list(side) for side in zip(*corpus[:], strict=True))
  return sources, [references], split.replace('/', '_')


if __name__ == '__main__':
  command_line.run(main)
