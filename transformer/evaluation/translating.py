"""The work of a `Request`: opens runs, translates a text, writes translations and scores."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformer.decoding.constraint import FREE, Constraint
from transformer.decoding.ensemble import load_ensemble, translate_with
from transformer.decoding.lines import as_lines, write_lines
from transformer.decoding.translator import Translation, Translator, warn_of_cut
from transformer.evaluation import report, results
from transformer.evaluation.own_metrics import OwnMetric
from transformer.evaluation.request import Request
from transformer.evaluation.texts import Text
from transformer.runs import run_directory
from transformer.runs.loading import Run, load_run
from transformer.system.progress import progress_bar


class Translated(NamedTuple):
  """The translations of a text, and the seconds that they took, with compilation."""

  answers: Sequence[Translation]
  seconds: float


def open_run(request: Request, checkpoint: str) -> Run:
  """Loads the run of a request at a checkpoint, as `load_run` does."""
  return load_run(request.workdir, checkpoint, request.average, request.batch_size)


def with_ensemble(request: Request, run: Run) -> list[Run]:
  """Returns a run and those that translate with it, as `load_ensemble` does."""
  others = run_directory.split_runs(','.join(request.ensemble)) if request.ensemble else []
  return load_ensemble(run, others, 'latest' if request.checkpoint == 'latest' else 'best',
                       request.average)


def folder_of(request: Request, text: Text) -> Path | None:
  """Returns the folder for scores, as `writable_folder` does; None if there are no references."""
  return report.writable_folder(request.workdir, request.results) if text.references else None


def place_of(folder: Path | None, run: Run, text: Text, decoding: results.Decoding,
             every_checkpoint: bool = False) -> results.Place:
  """Returns where the scores of a text go: of a checkpoint, or the table of all.

  Raises:
    UserError: the place holds the result of another run or text.
  """
  name, how = text.name, results.describe(run.steps, decoding)
  if every_checkpoint:
    name = f'{name}.all'
    del how['step']
  place = results.Place(folder, name, how)
  place.check_own(run.workdir, text.digest)
  return place


def translate(members: Sequence[Run], translator: Translator, text: Text,
              constraint: Constraint = FREE,
              description: str = 'translating: ') -> Translated:
  """Translates a text with a progress bar, and warns of sources that were cut.

  Args:
    members: the runs.
    translator: the translator of their models.
    text: the sentences.
    constraint: what the translations obey.
    description: the label of the bar.

  Raises:
    UserError: as `translate_with`.
  """
  started = time.perf_counter()
  with progress_bar(len(text.sources), description=description) as bar:
    answers = translate_with(members, translator, text.sources, constraint=constraint,
                             progress=bar.update)
  seconds = time.perf_counter() - started
  warn_of_cut([answer.cut for answer in answers], members[0].config.data.max_length)
  return Translated(answers, seconds)


def write_and_score(request: Request, place: results.Place, run: Run, text: Text,
                    decoding: results.Decoding, translated: Translated,
                    own_metrics: Sequence[OwnMetric] = ()) -> dict[str, Any] | None:
  """Writes translations, and reports their scores if there are references.

  Args:
    request: says where translations go, and what is printed.
    place: where the scores go.
    run: the run that translated.
    text: the sentences and their references.
    decoding: how they were translated.
    translated: the translations.
    own_metrics: metrics of one's own.

  Returns:
    The row of `report.report`; None without references.

  Raises:
    UserError: translations or scores cannot be written.
  """
  answers, seconds = translated
  row = None
  try:
    if output := request.output or (None if text.references else '-'):
      write_lines(as_lines(answers, request.nbest, drawn=decoding.config.sample), output)
  finally:  # Translations that do not fit onto a disk can still be scored.
    if text.references:
      from transformer.evaluation import scores  # Translating needs no sacreBLEU.
      stages = scores.evaluate(text, answers, seconds, decoding.config.bleu_tokenize,
                               run.config.data.target_language, own_metrics, request.ter)
      scored = report.Scored(
          stages, seconds, scores.protocol_lines if request.protocols else lambda _: [],
          cost=request.protocols)
      row = report.report(place, run, text, decoding, scored, request.people)
      report.show_examples(text, answers, request.examples, request.people)
  return row
