"""Reports of scores: what eval.py prints and writes for translations that have references."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from absl import logging

from transformer.errors import UserError
from transformer.evaluation import alignment_error, parses, results
from transformer.evaluation.own_metrics import OwnMetric
from transformer.evaluation.texts import Text
from transformer.runs import run_directory
from transformer.runs.cost import training_cost
from transformer.runs.curves import draw_scores
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


def show_examples(text: Text, answers: Sequence, count: int, trees: bool, people: TextIO):
  """Prints up to `count` translations beside their references, taken evenly from the text.

  Args:
    text: the sources and references.
    answers: the translations.
    count: how many to print.
    trees: draws the trees that the translations are.
    people: the stream that people read.
  """
  count = min(count, len(text.sources))
  for index in (number * len(text.sources) // count for number in range(count)):
    if trees:
      print(parses.example(text.sources[index], text.references[0][index], answers[index]),
            file=people)
      continue
    print(f'  source       {text.sources[index]}\n  reference    {text.references[0][index]}\n'
          f'  translation  {answers[index].text}\n', file=people)


class Translated(NamedTuple):
  """The translations of a text, and the seconds that they took."""

  answers: Sequence
  seconds: float


def report(place: results.Place, run, text: Text, decoding: results.Decoding,
           translated: Translated, own_metrics: Sequence[OwnMetric], people: TextIO
           ) -> dict[str, Any]:
  """Scores translations, prints the scores, and then writes them with those of each sentence.

  Args:
    place: where the result is written.
    run: the `Run` that translated.
    text: the sources and references.
    decoding: how they were translated.
    translated: the translations, and the time that they took.
    own_metrics: metrics beyond those of sacreBLEU; not for trees.
    people: the stream that people read.

  Returns:
    The row for `print_table`: the step, and the score by each metric's name.

  Raises:
    UserError: the result cannot be written; it was printed before.
  """
  answers, seconds = translated
  if run.config.data.source == 'trees':
    result, sentences = parses.evaluate(text.sources, text.references[0], answers, seconds)
    table = parses.as_table(result)
  else:
    from transformer.evaluation import scores  # Translating needs no sacreBLEU.
    result, sentences = scores.evaluate(
        text.sources, text.references, answers, seconds, decoding.config.bleu_tokenize,
        run.config.data.target_language, own_metrics)
    print(f'{result["details"]}\n{result["signature"]}', file=people)
    table = scores.as_table(result)
  headline = result['metrics'][0]
  how = ', '.join(f'{key} {value}' for key, value in place.how.items())
  print(f'{text.name}: {headline["name"]} {headline["score"]:.2f}, {len(text.sources)} sentences '
        f'in {seconds:.1f} s, {how}', file=people)
  print(*table, sep='\n', file=people)
  cost = None if decoding.ensemble else training_cost(run.workdir, run.steps[-1])
  if cost:
    print(f'  {cost}', file=people)
  if place.folder:
    place.write(run.workdir, text.digest, result | {
        **_origin(run, text), 'decode': dataclasses.asdict(decoding.config),
        'seed': decoding.seed if decoding.config.sample else None,
        'ensemble': [each.workdir for each in decoding.ensemble],
        'ensemble_steps': [each.steps for each in decoding.ensemble],
        'more': decoding.more, 'training_cost': cost and cost._asdict()}, sentences)
    print(f'also in {place.folder / place.stem}.json', file=people)
  return {'step': run.steps[-1], **{each['name']: each['score'] for each in result['metrics']},
          f'{headline["name"]}_interval_95': headline['interval_95']}


def report_alignments(place: results.Place, run, text: Text, gold: Sequence,
                      found: Sequence, people: TextIO):
  """Scores word alignments, prints the scores, and then writes them with those of each pair.

  Args:
    place: where the result is written.
    run: the `Run` that aligned.
    text: the sources and their translations.
    gold: the gold alignment of each pair.
    found: the alignment of each pair.
    people: the stream that people read.

  Raises:
    UserError: the result cannot be written; it was printed before.
  """
  result, sentences = alignment_error.evaluate(text.sources, text.references[0], gold, found)
  how = ', '.join(f'{key} {value}' for key, value in place.how.items())
  print(f'{place.text}: AER {result["metrics"][0]["score"]:.2f}, {len(gold)} pairs, {how}',
        *alignment_error.as_table(result), sep='\n', file=people)
  if place.folder:
    place.write(run.workdir, text.digest,
                result | {**_origin(run, text), 'how': place.how}, sentences)
    print(f'also in {place.folder / place.stem}.json', file=people)


def _origin(run, text: Text) -> dict[str, Any]:
  """Returns the facts of a result about the run, the text and the command."""
  return {'text': text.name, 'steps': run.steps, 'commit': run_directory.commit(),
          'command': sys.argv[1:]}


def print_table(place: results.Place, run, text: Text, decoding: results.Decoding,
                rows: Sequence[dict[str, Any]]):
  """Prints the scores of all checkpoints and marks the best; writes them, and plots BLEU or F1.

  Args:
    place: where the table is written.
    run: the `Run` of one of the checkpoints.
    text: the sources and references.
    decoding: how they were translated.
    rows: the row that `report` returned for each checkpoint.

  Raises:
    UserError: the table cannot be written; it was printed before.
  """
  _, *metrics, interval = rows[0]
  headline = metrics[0]
  best = max(rows, key=lambda row: row[headline])
  print(f'\n{"step":>9}' + ''.join(f'{metric:>11}' for metric in metrics))
  for row in rows:
    print(f'{row["step"]:9}' + ''.join(f'{row[metric]:11.2f}' for metric in metrics)
          + '  *' * (row is best))
  if place.folder:
    path = place.folder / place.stem
    place.write(run.workdir, text.digest, {
        **_origin(run, text), 'steps': [row['step'] for row in rows],
        'decode': dataclasses.asdict(decoding.config), 'more': decoding.more, 'checkpoints': rows})
    draw_scores(f'{text.name}: {headline}', [row['step'] for row in rows],
                [row[headline] for row in rows], [row[interval] for row in rows],
                f'{path}.svg')
    print(f'also in {path}.json and .svg')
