"""Scores a run on a split of its data, or translates text with it.

  python eval.py --workdir=DIR                                   # its test split
  python eval.py --workdir=DIR --split=test,valid --beam_size=1
  python eval.py --workdir=DIR --source=FILE --reference=FILE
  python eval.py --workdir=DIR --source=-                        # a prompt; in a pipe, a stream
  python eval.py --workdir=DIR --source=- --output=-  < in.txt   # only translate
  python eval.py --workdir=DIR --source=- --sample --seed=1  < in.txt
  python eval.py --workdir=DIR --source=- --nbest=4  < in.txt    # number ||| text ||| score
  python eval.py --workdir=DIR --metric=my_metrics:comet         # a metric of your own, too
  python eval.py --workdir=DIR --search=my_searches:diverse      # a search of your own
  python eval.py --workdir=DIR --source=FILE --prefix=FILE2      # each begins with a line of FILE2
  python eval.py --workdir=DIR --source=FILE --reference=FILE --score [--tokens]  # likelihoods
  python eval.py --workdir=DIR --checkpoint=all                  # every checkpoint that is kept
  python eval.py --workdir=DIR --ensemble=DIR2,DIR3              # their mean probabilities

Translations come in the order and number of the input's lines. Scores are printed, and
written to DIR/eval/ or to --results=FOLDER, those of each sentence too;
docs/scoring.md says how to compare them with the scores of other runs.
"""

import contextlib
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import logging

if __name__ == '__main__':  # With PYTHONSAFEPATH=1, Python does not look beside the script.
  sys.path.insert(0, str(Path(__file__).resolve().parent))

from transformer.commands import shared_flags
from transformer.data.text.text_files import is_blank
from transformer.decoding.config import Decoding
from transformer.errors import UserError
from transformer.evaluation.request import Request
from transformer.evaluation.scores import OwnMetric, load_metric
from transformer.evaluation.texts import Text
from transformer.runs.run_directory import read_settings
from transformer.system import command_line

_FLAGS = shared_flags.define_request()


def main(_):
  """Does what the flags ask for."""
  request = Request(**shared_flags.given(*_FLAGS))
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.decoding import prompt, text_lines
  from transformer.decoding.likelihoods import score_with
  from transformer.evaluation import translating
  from transformer.evaluation.metrics import check_tokenizer

  own_metrics = list(map(load_metric, request.metric))
  config = read_settings(request.workdir)
  decoding = request.decoding(config)
  only_translates = request.unscored and not request.prefix and request.output in (None, '-')
  if request.source == '-' and only_translates and text_lines.arrives_live():
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    answer = prompt.run_prompt if is_terminal else text_lines.translate_pipe
    answer(translating.load_for(request, request.checkpoint), decoding)
    return
  texts = request.read_texts(config.data)
  if request.score:
    run = translating.load_for(request, request.checkpoint)
    likelihoods = score_with(run.members, texts[0].sources, texts[0].references[0], request.tokens)
    text_lines.write_lines(
      text_lines.likelihood_lines(likelihoods, request.tokens), request.output or '-'
    )
    return
  if texts[0].references:
    check_tokenizer(decoding.config.bleu_tokenize)
    for doubt in dataclasses.replace(config, decode=decoding.config).doubts_of_bleu():
      logging.warning('%s', doubt)
    for text in texts:
      if all(is_blank(line) for lines in text.references for line in lines):
        logging.warning('%s: every reference is empty, so scores compare nothing', text.name)
  _translate(request, decoding, texts, own_metrics)


def _translate(
  request: Request, decoding: Decoding, texts: Sequence[Text], own_metrics: Sequence[OwnMetric]
):
  """Translates and scores texts at a checkpoint, or at all of them, with a table of each text."""
  from transformer.decoding.constraint import FREE, Prefixes
  from transformer.evaluation import report, results, translating
  from transformer.runs.loading import checkpoints_of

  every = request.checkpoint == 'all'
  failed = set()
  tables = {}

  @contextlib.contextmanager
  def others_go_on(checkpoint: str):
    try:
      yield
    except UserError as error:
      if not every:
        raise
      logging.warning('%s', error)
      failed.add(checkpoint)

  constraint = Prefixes(texts[0].prefixes) if texts[0].prefixes else FREE
  decoding = results.constrained(decoding, prefix=texts[0].prefixes)
  for checkpoint in checkpoints_of(request.workdir) if every else [request.checkpoint]:
    with others_go_on(checkpoint):
      run = translating.load_for(request, checkpoint)
      for text in texts:
        with others_go_on(checkpoint):
          result = translating.result_for(request, text, run, decoding)
          if every:  # A table that cannot be written is refused before the work.
            table = results.place(result.path.parent, {**result.content, 'steps': []}, 'all')
          translated = translating.translate(run, decoding, text, constraint)
          row = translating.write_and_score(request, result, run, text, translated, own_metrics)
          if every:
            tables.setdefault(text.name, (table, []))[1].append(row)
  for table, rows in tables.values():
    report.print_table(table, rows)
  if failed:
    raise UserError(f'{len(failed)} checkpoints could not be scored, as the warnings above say')


start = command_line.starter(main)  # `attention-eval` calls it.

if __name__ == '__main__':
  start()
