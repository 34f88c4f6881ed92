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
  python eval.py --workdir=DIR --source=FILE --reference=FILE --score [--tokens]  # likelihoods
  python eval.py --workdir=DIR --checkpoint=all                  # every checkpoint that is kept
  python eval.py --workdir=DIR --ensemble=DIR2,DIR3              # their mean probabilities

Translations come in the order and number of the input's lines. Scores are printed, and
written to DIR/eval/ or to --results=FOLDER, those of each sentence too;
python -m transformer.tools.compare holds them against those of other runs.
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
from transformer.errors import UserError
from transformer.evaluation.request import Request
from transformer.evaluation.results import Decoding
from transformer.evaluation.scores import OwnMetric, load_metric
from transformer.evaluation.texts import Text
from transformer.runs.run_directory import read_settings
from transformer.system import command_line

_FLAGS = shared_flags.define_request()


def main(_):
  """Does what the flags ask for."""
  request = Request(**shared_flags.given(*_FLAGS))
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.decoding import ensemble, prompt, text_lines
  from transformer.evaluation.metrics import check_tokenizer
  from transformer.evaluation.translating import load_members
  own_metrics = list(map(load_metric, request.metric))
  config = read_settings(request.workdir)
  decoding = request.decoding(config)
  only_translates = request.unscored and not request.prefix and request.output in (None, '-')
  if request.source == '-' and only_translates and text_lines.arrives_live():
    members, more = load_members(request, request.checkpoint), (decoding.seed, request.nbest)
    if sys.stdin.isatty() and sys.stdout.isatty():
      prompt.run_prompt(members, decoding.config, *more)
    else:
      translator = ensemble.make_translator(members, decoding.config, *more)
      text_lines.translate_pipe(members, translator, request.nbest, decoding.config.sample)
    return
  texts = request.read_texts(config.data)
  if request.score:
    likelihoods = ensemble.score_with(load_members(request, request.checkpoint), texts[0].sources,
                                      texts[0].references[0], request.tokens)
    text_lines.write_lines(text_lines.likelihood_lines(likelihoods, request.tokens),
                           request.output or '-')
    return
  if texts[0].references:
    check_tokenizer(decoding.config.bleu_tokenize)
    for doubt in dataclasses.replace(config, decode=decoding.config).doubts_of_bleu():
      logging.warning('%s', doubt)
  _translate(request, decoding, texts, own_metrics)


def _translate(request: Request, decoding: Decoding, texts: Sequence[Text],
               own_metrics: Sequence[OwnMetric]):
  """Translates and scores texts at a checkpoint, or at all of them, with a table of each text."""
  from transformer.decoding.constraint import FREE, Prefixes
  from transformer.decoding.ensemble import make_translator
  from transformer.evaluation import report, results, translating
  from transformer.runs.loading import checkpoints_of
  every, failed, tables, translator = request.every_checkpoint, set(), {}, None

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
  decoding = decoding.constrained(prefix=texts[0].prefixes)
  for checkpoint in checkpoints_of(request.workdir) if every else [request.checkpoint]:
    with others_go_on(checkpoint):
      members = translating.load_members(request, checkpoint)
      translator = translator or make_translator(members, decoding.config, decoding.seed,
                                                 request.nbest)
      for text in texts:
        with others_go_on(checkpoint):
          result = translating.result_for(request, text, members, decoding)
          if every:  # A table that cannot be written is refused before the work.
            table = results.place(result.path.parent, {**result.content, 'steps': []}, 'all')
          translated = translating.translate(members, translator, text, constraint)
          row = translating.write_and_score(request, result, members[0], text, translated,
                                            own_metrics)
          if every:
            tables.setdefault(text.name, (table, []))[1].append(row)
  for table, rows in tables.values():
    report.print_table(table, rows)
  if failed:
    raise UserError(f'{len(failed)} checkpoints could not be scored, as the warnings above say')


start = command_line.starter(main)  # `attention-eval` calls it.

if __name__ == '__main__':
  start()
