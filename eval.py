"""Scores a run on a split of its data, or translates text with it.

  python eval.py --workdir=DIR                                   # its test split
  python eval.py --workdir=DIR --split=test,valid --beam_size=1
  python eval.py --workdir=DIR --source=FILE --reference=FILE
  python eval.py --workdir=DIR --source=-                        # a prompt; in a pipe, a stream
  python eval.py --workdir=DIR --source=- --output=-  < in.txt   # only translate
  python eval.py --workdir=DIR --source=- --sample --seed=1  < in.txt
  python eval.py --workdir=DIR --source=- --nbest=4  < in.txt    # number ||| text ||| score
  python eval.py --workdir=DIR --metric=my_metrics:comet         # also a custom metric
  python eval.py --workdir=DIR --search=my_searches:diverse      # a custom search
  python eval.py --workdir=DIR --checkpoint=all                  # every saved checkpoint
  python eval.py --workdir=DIR --ensemble=DIR2,DIR3              # their mean probabilities

There is one translation per input line, in the same order. Scores are printed, and
written to DIR/eval/ or to --results=FOLDER, together with the scores of each sentence;
docs/scoring.md explains how to compare the scores of runs.
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import logging

# With PYTHONSAFEPATH=1, the folder of the script is not in `sys.path`.
if __name__ == '__main__':
  sys.path.insert(0, str(Path(__file__).resolve().parent))

from transformer.cli import shared_flags
from transformer.cli.request import Request
from transformer.config import Config
from transformer.data.text.text_files import is_blank
from transformer.decoding.config import DecodeOptions
from transformer.errors import UserError
from transformer.evaluation.eval_sets import EvalSet
from transformer.evaluation.scores import load_metric
from transformer.runs.run_directory import read_config
from transformer.system import command_line

_FLAGS = shared_flags.define()


def main(_):
  """Translates and scores the texts that the flags name, at each requested checkpoint."""
  request = Request.from_flags(_FLAGS)
  # JAX is imported only here, so that --help and invalid flags return at once.
  from transformer.cli import text_lines
  from transformer.cli.translating import translate_and_score
  from transformer.evaluation import report
  from transformer.runs.loading import saved_steps

  custom_metrics = list(map(load_metric, request.metric))
  config = read_config(request.workdir)
  decoding = request.decode_options(config)
  only_translates = request.unscored and request.output in ('', '-')
  if request.source == '-' and only_translates and text_lines.stdin_is_live():
    run = request.load()
    text_lines.translate_stdin(run, decoding)
    return
  eval_sets = request.read_eval_sets(config.data)
  if eval_sets[0].references:
    _check_references(eval_sets, config, decoding)
  every = request.checkpoint == 'all'
  failed = 0
  scored = {}
  for checkpoint in saved_steps(request.workdir) if every else [request.checkpoint]:
    try:
      run = request.load(checkpoint)
      for eval_set in eval_sets:
        _, pair = translate_and_score(request, run, eval_set, decoding, custom_metrics)
        scored.setdefault(eval_set.name, []).append(pair)
    except UserError as error:
      if not every:
        raise
      logging.warning(error)
      failed += 1
  if every:
    for pairs in scored.values():
      report.write_and_print_table(pairs)
  if failed:
    raise UserError(
      f'{failed} checkpoints could not be scored, as the warnings above say'
    )


def _check_references(
  eval_sets: Sequence[EvalSet], config: Config, decoding: DecodeOptions
):
  """Warns if references make scores questionable; raises `UserError` if BLEU lacks packages."""
  from transformer.evaluation.metrics import check_tokenizer

  check_tokenizer(decoding.bleu_tokenize)
  for warning in dataclasses.replace(config, decode=decoding).bleu_warnings():
    logging.warning(warning)
  for eval_set in eval_sets:
    if all(is_blank(line) for lines in eval_set.references for line in lines):
      logging.warning(
        '%s: every reference is empty, so the scores are meaningless', eval_set.name
      )


start = command_line.entry_point(main)  # `attention-eval` calls this.

if __name__ == '__main__':
  start()
