"""The work of a `Request`: loads runs, translates a text, writes translations and scores."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer import files
from transformer.decoding.config import Decoding
from transformer.decoding.constraint import FREE, Constraint
from transformer.decoding.pairs import warn_of_cut
from transformer.decoding.text_lines import as_lines, write_lines
from transformer.decoding.trained_run import TrainedRun, load
from transformer.decoding.translator import Translation
from transformer.evaluation import report, results
from transformer.evaluation.request import Request
from transformer.evaluation.scores import OwnMetric
from transformer.evaluation.texts import Text
from transformer.runs import run_directory
from transformer.system import outputs
from transformer.system.progress import progress_bar


def load_for(request: Request, checkpoint: str) -> TrainedRun:
  """Returns the run of a request at a checkpoint, with those that translate with it."""
  return load(request.workdir, checkpoint, request.average, request.ensemble, request.batch_size)


def result_for(
  request: Request,
  text: Text,
  run: TrainedRun,
  decoding: Decoding | None = None,
  kind: str = '',
  **more: str,
) -> results.Result:
  """Returns the result to write, as `results.place` does; `more` tells it from others, by name."""
  content = results.facts(text, run.members, decoding)
  content['more'] |= more
  if not text.references:
    return results.Result(None, content)
  folder = files.as_path(request.results or Path(request.workdir, run_directory.EVALUATIONS))
  outputs.check_folder('results', folder)
  return results.place(folder, content, kind)


def translate(
  run: TrainedRun,
  decoding: Decoding,
  text: Text,
  constraint: Constraint = FREE,
  description: str = 'translating: ',
) -> tuple[list[Translation], float]:
  """Translates a text with a progress bar; returns the seconds, with compilation, too."""
  started = time.perf_counter()
  with progress_bar(len(text.sources), description=description) as bar:
    answers = run.answers(text.sources, decoding, constraint=constraint, progress=bar.update)
  seconds = time.perf_counter() - started
  warn_of_cut([answer.cut for answer in answers], run.config.data.max_length)
  return answers, seconds


def write_and_score(
  request: Request,
  result: results.Result,
  run: TrainedRun,
  text: Text,
  translated: tuple[Sequence[Translation], float],
  own_metrics: Sequence[OwnMetric] = (),
) -> dict[str, Any] | None:
  """Writes what `translate` returned; if there are references, reports scores and returns the row.

  `result` is from `result_for`.
  """
  answers, seconds = translated
  row = None
  try:
    if output := request.output or (None if text.references else '-'):
      write_lines(as_lines(answers, request.nbest), output)
  finally:  # Translations that do not fit onto a disk can still be scored.
    if text.references:
      stages = report.evaluate(
        text,
        answers,
        seconds,
        result.content['decode']['bleu_tokenize'],
        run.config.data.target_language,
        own_metrics,
        request.ter,
      )
      row = report.report(
        result, stages, request.people, report.protocol_lines if request.protocols else lambda _: []
      )
      report.show_examples(text, answers, request.examples, request.people)
  return row
