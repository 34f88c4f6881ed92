"""Reports of scores: what eval.py prints and writes for translations that have references."""

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from absl import logging

from transformer.errors import UserError, optional
from transformer.evaluation import results
from transformer.evaluation.resampling import metric_lines
from transformer.evaluation.texts import Text
from transformer.runs import run_directory
from transformer.runs.cost import TrainingCost, training_cost
from transformer.system import outputs


def writable_folder(workdir: str, asked: str | None) -> Path | None:
  """Returns the folder for results, once it is known to be writable.

  Args:
    workdir: the run's directory; its `eval/` is the default.
    asked: the folder that the user asked for.

  Returns:
    The folder; None, with a warning, if the default cannot be written to.

  Raises:
    UserError: the folder that the user asked for cannot be written to.
  """
  if asked:
    outputs.check_folder('results', folder := Path(asked).expanduser())
    return folder
  folder = Path(workdir).expanduser() / run_directory.EVALUATIONS
  try:
    outputs.check_folder('workdir', folder)
  except UserError as error:
    logging.warning('scores are printed and not kept: %s; --results=FOLDER keeps them', error)
    return None
  return folder


def show_examples(text: Text, answers: Sequence, count: int, people: TextIO):
  """Prints up to `count` translations beside their references, taken evenly from the text.

  Args:
    text: the sources and references.
    answers: the translations.
    count: how many to print.
    people: the stream that people read.
  """
  count = min(count, len(text.sources))
  for index in (number * len(text.sources) // count for number in range(count)):
    print(f'  source       {text.sources[index]}\n  reference    {text.references[0][index]}\n'
          f'  translation  {answers[index].text}\n', file=people)


class Scored(NamedTuple):
  """The scores of a text, which are computed while they are read.

  Attributes:
    stages: JSON data for `Place.write`: the scores of the text, and an object for each sentence.
      Each stage has the scores of the one before, and more.
    seconds: the time of translating, with compilation.
    more_lines: returns lines for people from the last stage's scores, beside those of `metrics`.
    cost: whether the cost of training is printed.
  """

  stages: Iterable[tuple[dict[str, Any], list[dict[str, Any]]]]
  seconds: float
  more_lines: Callable[[dict[str, Any]], list[str]]
  cost: bool = False


def report(place: results.Place, run, text: Text, decoding: results.Decoding, scored: Scored,
           people: TextIO) -> dict[str, Any]:
  """Prints and writes scores as they come.

  Args:
    place: where the result is written.
    run: the `Run` that translated.
    text: the sources and references.
    decoding: how they were translated.
    scored: the scores; the first metric is the headline.
    people: the stream that people read.

  Returns:
    The row for `print_table`: the step, and the score by each metric's name.

  Raises:
    UserError: the result cannot be written or printed; all of it was printed or written before.
  """
  cost = None if decoding.ensemble else _training_cost(run)
  facts = {**origin(run, text), 'decode': dataclasses.asdict(decoding.config),
           'seed': decoding.seed if decoding.config.sample else None,
           'ensemble': [each.workdir for each in decoding.ensemble],
           'ensemble_steps': [each.steps for each in decoding.ensemble],
           'more': decoding.more, 'training_cost': cost and cost._asdict()}
  unprinted = [_say(people, f'{text.name}: {len(text.sources)} sentences in '
                    f'{scored.seconds:.1f} s, ' + _in_words(place.how))]
  shown = 0
  for result, sentences in scored.stages:
    failure = None
    try:
      if place.folder:
        place.write(run.workdir, text.digest, result | facts, sentences)
    except UserError as error:
      failure = error
    unprinted.append(_say(people, *metric_lines(result['metrics'][shown:])))
    shown = len(result['metrics'])
  unprinted.append(_say(people, *scored.more_lines(result),
                        *([f'  {cost}'] if cost and scored.cost else [])))
  if failure:
    raise failure
  if place.folder:
    unprinted.append(_say(people, f'also in {place.folder / place.stem}.json'))
  if error := next(filter(None, unprinted), None):
    raise UserError(f'scores cannot be printed: {error.strerror}; '
                    + (f'{place.folder / place.stem}.json has them' if place.folder else
                       'give --results=FOLDER to keep them'))
  headline = result['metrics'][0]
  return {'step': run.steps[-1], **{each['name']: each['score'] for each in result['metrics']},
          f'{headline["name"]}_interval_95': headline['interval_95']}


def _training_cost(run) -> TrainingCost | None:
  """Returns the cost of training; None, with a warning, if its record cannot be understood."""
  with optional('the cost of training is left out', logging.warning):
    return training_cost(run.workdir, run.steps[-1])
  return None


def _say(people: TextIO, *lines: str) -> OSError | None:
  """Prints lines at once; returns the error if that fails, unless the reader has just ended."""
  try:
    for line in lines:
      print(line, file=people, flush=True)
  except OSError as error:
    return None if isinstance(error, BrokenPipeError) else error
  return None


def _in_words(how: Mapping[str, str | int]) -> str:
  return ', '.join(f'{key} {value}' for key, value in how.items())


def origin(run, text: Text) -> dict[str, Any]:
  """Returns the facts of a result about the run, the text and the command."""
  return {'text': text.name, 'steps': run.steps, 'commit': run_directory.commit(),
          'command': sys.argv[1:]}


class Table(NamedTuple):
  """The scores of all checkpoints on one text.

  Attributes:
    place: where the table is written.
    text: the sources and references.
    rows: the row that `report` returned for each checkpoint.
  """

  place: results.Place
  text: Text
  rows: list[dict[str, Any]]


def print_table(table: Table, run, decoding: results.Decoding):
  """Prints the scores of all checkpoints and marks the best; writes them.

  Args:
    table: the scores; an empty one is left out.
    run: the `Run` of one of the checkpoints.
    decoding: how they were translated.

  Raises:
    UserError: the table cannot be written; it was printed before.
  """
  place, text, rows = table
  if not rows:
    return
  _, headline, *_ = rows[0]
  interval = f'{headline}_interval_95'
  # A metric may have been left out for some of them.
  metrics = dict.fromkeys(name for row in rows for name in row if name not in ('step', interval))
  best = max(rows, key=lambda row: row[headline])
  print(f'\n{"step":>9}' + ''.join(f'{metric:>11}' for metric in metrics))
  for row in rows:
    line = f'{row["step"]:9}' + ''.join(
        f'{row[metric]:11.2f}' if metric in row else f'{"":11}' for metric in metrics)
    print(f'{line}  *' if row is best else line.rstrip())
  if place.folder:
    path = place.folder / place.stem
    place.write(run.workdir, text.digest, {
        **origin(run, text), 'steps': [row['step'] for row in rows],
        'decode': dataclasses.asdict(decoding.config), 'more': decoding.more, 'checkpoints': rows})
    print(f'also in {path}.json')
