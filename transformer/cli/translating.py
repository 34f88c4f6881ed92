"""Translates a text as requested, writes the translations, and scores them."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from transformer import files
from transformer.cli.request import Request
from transformer.cli.text_lines import as_lines, write_lines
from transformer.decoding.config import DecodeOptions
from transformer.decoding.constraint import UNCONSTRAINED, Constraint
from transformer.evaluation import report, results
from transformer.evaluation.eval_sets import EvalSet
from transformer.evaluation.scores import CustomMetric
from transformer.runs import run_directory
from transformer.system import outputs
from transformer.trained_run import TrainedRun


def translate_and_score(
  request: Request,
  run: TrainedRun,
  eval_set: EvalSet,
  decoding: DecodeOptions,
  custom_metrics: Sequence[CustomMetric] = (),
  constraint: Constraint = UNCONSTRAINED,
  **lines: Sequence[str],
) -> tuple:
  """Translates a text and writes the requested output; scores it if it has references.

  `lines` distinguishes the result from others, like `lines` in `results.metadata`.

  Returns:
    The translations; and the result with its row for `print_table`, or None without references.

  Raises:
    UserError: the result of a different run or text would be overwritten, the constraint cannot be
      met, or a file cannot be written. If a file cannot be written, scores are still printed and
      written where possible.
  """
  result = None
  if eval_set.references:
    content = results.metadata(eval_set, run.members, decoding, **lines)
    default = Path(request.workdir, run_directory.RESULTS)
    folder = files.as_path(request.results or default)
    outputs.check_folder('results', folder)
    result = results.new_result(folder, content)
  started = time.perf_counter()
  translations = run.translations(eval_set.sources, decoding, constraint=constraint)
  seconds = time.perf_counter() - started
  scored = None
  output = request.output or ('' if result else '-')
  try:
    if output:
      write_lines(as_lines(translations, decoding.nbest), output)
  finally:  # Translations are scored even if the disk has no space for them.
    if result:
      stages = report.evaluate(
        eval_set, translations, seconds, decoding.bleu_tokenize, custom_metrics
      )
      # If translations go to standard output, print scores to standard error.
      stream = sys.stderr if output == '-' else sys.stdout
      scored = result, report.write_and_print(result, stages, stream)
      report.show_examples(eval_set, translations, request.examples, stream)
  return translations, scored
