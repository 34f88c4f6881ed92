"""Translates a text as a request says, writes the translations, and scores them."""

import time
from collections.abc import Sequence
from typing import Any

from transformer.commands.request import Request
from transformer.commands.text_lines import as_lines, write_lines
from transformer.decoding.config import Decoding
from transformer.decoding.constraint import FREE, Constraint
from transformer.decoding.translator import Translation
from transformer.evaluation import report, results
from transformer.evaluation.scores import OwnMetric
from transformer.evaluation.texts import Text
from transformer.trained_run import TrainedRun

# The result of a text and its row for `print_table`.
Scored = tuple[results.Result, dict[str, Any]]


def translate_text(
  request: Request,
  run: TrainedRun,
  text: Text,
  decoding: Decoding,
  own_metrics: Sequence[OwnMetric] = (),
  constraint: Constraint = FREE,
  **more: str | Sequence[str],
) -> tuple[list[Translation], Scored | None]:
  """Translates a text and writes what is asked for; with references, scores it.

  `more` tells the result from others, as in `results.facts`.

  Raises:
    UserError: a result of another run or text has the place of this one, no translation can obey,
      or a file cannot be written. The scores are then still printed and written where possible.
  """
  result = None
  if text.references:
    content = results.facts(text, run.members, decoding, **more)
    result = results.place(request.results_folder, content)
  started = time.perf_counter()
  answers = run.answers(text.sources, decoding, constraint=constraint)
  seconds = time.perf_counter() - started
  scored = None
  try:
    output = request.output or (None if result else '-')
    if output:
      write_lines(as_lines(answers, request.nbest), output)
  finally:  # Translations that do not fit onto a disk can still be scored.
    if result:
      stages = report.evaluate(
        text, answers, seconds, decoding.bleu_tokenize, own_metrics
      )
      scored = result, report.report(result, stages, request.people)
      report.show_examples(text, answers, request.examples, request.people)
  return answers, scored
