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
from pathlib import Path

from absl import logging

if __name__ == '__main__':  # With PYTHONSAFEPATH=1, Python does not look beside the script.
  sys.path.insert(0, str(Path(__file__).resolve().parent))

from transformer.commands import request_flags
from transformer.errors import UserError
from transformer.evaluation.request import Request
from transformer.system import command_line

_FLAGS = request_flags.define_all()


def main(_):
  """Does what the flags ask for."""
  request = request_flags.request(_FLAGS)
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.decoding import stream
  from transformer.evaluation.own_metrics import load_metric
  from transformer.evaluation.translating import with_ensemble
  own_metrics = list(map(load_metric, request.metric))
  failed: dict[str, UserError] = {}
  runs = _runs(request, failed)
  run = next(runs, None)
  if run is None:
    raise next(iter(failed.values()))
  members = with_ensemble(request, run)
  decoding = request.decoding(members)
  if request.only_translates_standard_input and stream.arrives_live():
    _translate_live(request, members, decoding)
    return
  texts = request.read_texts(run.config.data)
  if request.score:
    _score(request, members, texts[0])
    return
  if texts[0].references:
    from transformer.evaluation.metrics import check_tokenizer
    check_tokenizer(decoding.config.bleu_tokenize)
    for doubt in dataclasses.replace(run.config, decode=decoding.config).doubts_of_bleu():
      logging.warning('%s', doubt)
  _translate(request, members, runs, texts, decoding, own_metrics, failed)
  if failed:
    raise UserError(f'{len(failed)} checkpoints could not be scored, as the warnings above say; '
                    f'the tables have all other scores')


def _runs(request: Request, failed: dict[str, UserError]):
  """Yields the run at each checkpoint; the errors of others are added to `failed`."""
  from transformer.evaluation.translating import open_run
  from transformer.runs.loading import checkpoints_of
  for checkpoint in (checkpoints_of(request.workdir) if request.every_checkpoint
                     else [request.checkpoint]):
    try:
      run = open_run(request, checkpoint)
    except UserError as error:
      _go_on_without(request, checkpoint, error, failed)
    else:
      yield run


def _go_on_without(request: Request, checkpoint: str, error: UserError,
                   failed: dict[str, UserError]):
  """Warns of scores that the tables of all checkpoints lack; without tables, raises the error."""
  if not request.every_checkpoint:
    raise error
  logging.warning('%s', error)
  failed[checkpoint] = error


def _translate_live(request: Request, members, decoding):
  """Translates the lines of a pipe or a terminal as they arrive."""
  from transformer.decoding import prompt, stream
  from transformer.decoding.ensemble import make_translator
  if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
    if request.prefix_column:
      raise UserError('--prefix_column is for files and pipes; at this prompt, :prefix WORDS says '
                      'what translations begin with')
    prompt.run_prompt(members, decoding.config, decoding.seed, request.nbest)
  else:
    translate = make_translator(members, decoding.config, decoding.seed, request.nbest)
    stream.translate_pipe(members, translate, request.nbest, request.prefix_column,
                          decoding.config.sample)


def _score(request: Request, members, text):
  """Writes the likelihood of each reference."""
  from transformer.decoding.ensemble import score_with
  from transformer.decoding.lines import score_lines, token_lines, write_lines
  likelihoods = score_with(members, text.sources, text.references[0], request.tokens)
  write_lines((token_lines if request.tokens else score_lines)(likelihoods), request.output or '-')


def _translate(request: Request, members, runs, texts, decoding, own_metrics, failed):
  """Translates texts by the first run and by the others; prints tables of all checkpoints."""
  from transformer.decoding.constraint import FREE
  from transformer.decoding.ensemble import make_translator
  from transformer.decoding.prefixes import Prefixes
  from transformer.evaluation import report, translating
  run = members[0]
  texts[0], prefixes = request.read_prefixes(texts[0])
  constraint = Prefixes(prefixes) if prefixes else FREE
  decoding = decoding._replace(constraints={'prefix': prefixes})
  translator = make_translator(members, decoding.config, decoding.seed, request.nbest)
  folder = translating.folder_of(request, texts[0])
  tables = [report.Table(translating.place_of(folder, run, text, decoding, True), text, [])
            for text in texts if request.every_checkpoint]
  for scored in itertools.chain([run], runs):
    own = [scored, *members[1:]]
    for number, text in enumerate(texts):
      try:
        place = translating.place_of(folder, scored, text, decoding)
        translated = translating.translate(own, translator, text, constraint)
        row = translating.write_and_score(request, place, scored, text, decoding, translated,
                                          own_metrics)
      except UserError as error:
        _go_on_without(request, str(scored.steps[-1]), error, failed)
      else:
        if tables:
          tables[number].rows.append(row)
  for table in tables:
    report.print_table(table, run, decoding)


def start():
  """Runs `main` with the flags of the command line; `attention-eval` calls it."""
  command_line.run(main)


if __name__ == '__main__':
  start()
