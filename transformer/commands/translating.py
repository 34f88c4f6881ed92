"""Writes the translations of a text, and their scores."""

from collections.abc import Sequence
from typing import Any

from transformer.commands.request import Request
from transformer.commands.text_lines import as_lines, write_lines
from transformer.decoding.translator import Translation
from transformer.evaluation import report, results
from transformer.evaluation.scores import OwnMetric
from transformer.evaluation.texts import Text


def write_and_score(
  request: Request,
  result: results.Result | None,
  text: Text,
  translated: tuple[Sequence[Translation], float],
  own_metrics: Sequence[OwnMetric] = (),
) -> dict[str, Any] | None:
  """Writes translations; with references, scores them and returns the row for `print_table`.

  `result` is where scores go, if the text has references. The translations took some seconds.
  """
  answers, seconds = translated
  row = None
  try:
    output = request.output or (None if result else '-')
    if output:
      write_lines(as_lines(answers, request.nbest), output)
  finally:  # Translations that do not fit onto a disk can still be scored.
    if result:
      tokenize = result.content['decode']['bleu_tokenize']
      stages = report.evaluate(text, answers, seconds, tokenize, own_metrics)
      row = report.report(result, stages, request.people)
      report.show_examples(text, answers, request.examples, request.people)
  return row
