"""Scores a run on a split of its data, or translates text with it.

  python eval.py --workdir=DIR                                   # its test split
  python eval.py --workdir=DIR --split=valid --beam_size=1
  python eval.py --workdir=DIR --source=FILE --reference=FILE
  python eval.py --workdir=DIR --source=- --output=-  < in.txt   # only translate
  python eval.py --workdir=DIR --source=- --sample --seed=1  < in.txt

Translations come in the order and number of the input's lines. Scores are
printed, and written to DIR/eval/.
"""

import dataclasses
import hashlib
import itertools
import sys
import time
from pathlib import Path

from absl import flags, logging

from transformer import command_line, files
from transformer.data.sources import open_corpus
from transformer.data.text_files import STANDARD_INPUT, read_lines
from transformer.errors import UserError
from transformer.training import run_directory

_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_SPLIT = flags.DEFINE_string('split', None, 'test, valid, train, or a split or prefix of the '
                             'data by its own name. The default without --source is test.')
_SOURCE = flags.DEFINE_string('source', None, 'A file to translate, or - for standard input.')
_REFERENCE = flags.DEFINE_multi_string('reference', [], 'A file of translations to score '
                                       'against; may be given more than once.')
_CHECKPOINT, _AVERAGE = command_line.define_checkpoint()
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
_DATA_DIR = flags.DEFINE_string('data_dir', None, 'Where the data lies now, if it has moved.')


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
    path = Path(_OUTPUT.value).expanduser()
    if path.is_dir():
      raise UserError(f'--output must name a file; {path} is a directory')
    command_line.check_folder('output', path.parent)
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.inference.translate import Translator
  from transformer.run import load_run
  from transformer.training.mesh import sentence_sharding
  run = load_run(_WORKDIR.value, _CHECKPOINT.value, _AVERAGE.value)
  decode, seed = _decoding(run.config)

  sources, references, name = _read(run.config.data)
  evaluations = Path(_WORKDIR.value).expanduser() / run_directory.EVALUATIONS
  if references:
    if not sources:
      raise UserError(f'there is nothing to score; {_SOURCE.value} is empty')
    command_line.check_folder('workdir', evaluations)
  translate = Translator(run.model, run.vocabulary, decode, run.config.data.max_length, seed,
                         sentence_sharding(run.mesh, decode.batch_size))
  started = time.perf_counter()
  answers = translate(run.params, sources)
  seconds = time.perf_counter() - started
  translations = [answer.text for answer in answers]
  cut = sum(answer.cut for answer in answers)
  if cut:
    logging.warning('%d of %d sources were longer than data.max_length=%d tokens and were cut',
                    cut, len(sources), run.config.data.max_length)

  output = _OUTPUT.value or (None if references else '-')
  if output == '-':
    sys.stdout.reconfigure(encoding='utf-8', newline='\n')
    sys.stdout.writelines(line + '\n' for line in translations)
    sys.stdout.flush()
  elif output:
    path = Path(output).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(line + '\n' for line in translations), encoding='utf-8', newline='\n')
  if not references:
    return
  from transformer.inference.bleu import bleu_by_protocol  # Translating needs no sacreBLEU.
  scores = bleu_by_protocol(translations, references, decode.bleu_tokenize,
                            run.config.data.target_language)
  bleu = scores[0]
  result = {
      'bleu': bleu.score, 'signature': bleu.signature, 'details': bleu.details, 'text': name,
      'protocols': [{'name': each.name, 'bleu': each.score, 'signature': each.signature}
                    for each in scores],
      'sentences': len(sources), 'cut_sources': cut, 'steps': run.steps,
      'decode': dataclasses.asdict(decode), 'seed': seed if decode.sample else None,
      'seconds': seconds, 'commit': run_directory.commit(), 'command': sys.argv[1:]}
  steps = str(run.steps[-1]) + f'.average{len(run.steps)}' * (len(run.steps) > 1)
  how = _describe(decode, seed)
  stem = '.'.join([name, f'step{steps}', *(f'{key}{value}' for key, value in how.items())])
  path = evaluations / f'{stem}.json'
  files.write_json(path, result)
  # Standard output belongs to the translations if they go there.
  people = sys.stderr if output == '-' else sys.stdout
  for index in _spread(_EXAMPLES.value, len(sources)):
    print(f'  source       {sources[index]}\n  reference    {references[0][index]}\n'
          f'  translation  {translations[index]}\n', file=people)
  print(f'{bleu.details}\n{bleu.signature}\n'
        f'{name}: BLEU {bleu.score:.2f}, {len(sources)} sentences in {seconds:.1f} s, '
        f'step {steps}, {", ".join(f"{key} {value}" for key, value in how.items())}; '
        f'also in {path}', file=people)
  width = max(len(each.name) for each in scores)
  for each in scores:
    print(f'  {each.name:{width}}  {each.score:6.2f}  {each.signature}', file=people)


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
  corpus = open_corpus(data, split)
  for note in corpus.notes:
    logging.warning('%s', note)
  sources, references = (list(side) for side in zip(*corpus[:], strict=True))
  return sources, [references], split.replace('/', '_')


if __name__ == '__main__':
  command_line.run(main)
