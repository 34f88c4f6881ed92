"""Translates a text as a request says, writes the translations, and scores them."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from transformer import files
from transformer.commands.request import Request
from transformer.commands.text_lines import as_lines, write_lines
from transformer.decoding.config import Decoding
from transformer.decoding.constraint import FREE, Constraint
from transformer.evaluation import report, results
from transformer.evaluation.scores import OwnMetric
from transformer.evaluation.texts import Text
from transformer.runs import run_directory
from transformer.system import outputs
from transformer.trained_run import TrainedRun


def translate_text(
  request: Request,
  run: TrainedRun,
  text: Text,
  decoding: Decoding,
  own_metrics: Sequence[OwnMetric] = (),
  constraint: Constraint = FREE,
  **more: Sequence[str],
) -> tuple:
  """Translates a text and writes what is asked for; with references, scores it.

  `more` distinguishes the result from others, as in `results.facts`.

  Returns:
    The translations; and its result with the row for `print_table`, or None without references.

  Raises:
    UserError: a result of another run or text has the place of this one, no translation can obey,
      or a file cannot be written. The scores are then still printed and written where possible.
  """
  result = None
  if text.references:
    content = results.facts(text, run.members, decoding, **more)
    default = Path(request.workdir, run_directory.EVALUATIONS)
    folder = files.as_path(request.results or default)
    outputs.check_folder('results', folder)
    result = results.place(folder, content)
  started = time.perf_counter()
  answers = run.answers(text.sources, decoding, constraint=constraint)
  seconds = time.perf_counter() - started
  scored = None
  output = request.output or ('' if result else '-')
  try:
    if output:
      write_lines(as_lines(answers, decoding.nbest), output)
  finally:  # Translations that do not fit onto a disk can still be scored.
    if result:
      stages = report.evaluate(
        text, answers, seconds, decoding.bleu_tokenize, own_metrics
      )
      # Standard output may hold the translations.
      people = sys.stderr if output == '-' else sys.stdout
      scored = result, report.report(result, stages, people)
      report.show_examples(text, answers, request.examples, people)
  return answers, scored
