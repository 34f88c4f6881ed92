"""Reports of scores: what eval.py prints and writes for translations that have references."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from transformer.evaluation.resampling import metric_lines
from transformer.evaluation.results import Result
from transformer.evaluation.texts import Text


def report(result: Result, stages: Iterable[tuple[dict[str, Any], list[dict[str, Any]]]],
           people: TextIO, more_lines: Callable[[dict[str, Any]], list[str]] = lambda _: []
           ) -> dict[str, Any]:
  """Prints and writes scores as they come.

  Args:
    result: the result to write.
    stages: JSON data for `Result.write`: the scores of the text, and an object for each sentence.
      Each stage has the scores of the one before, and more. The first metric is the headline.
    people: the stream that people read.
    more_lines: returns lines for people from the last stage's scores.

  Returns:
    The row for `print_table`: the step, and the score by each metric's name.
  """
  shown = 0
  for scores, sentences in stages:
    metrics = scores['metrics']
    try:
      if result.path:  # Before it is printed, since the reader of a pipe may have ended.
        result.write(scores, sentences)
    finally:  # Scores that do not fit onto a disk can still be read.
      if not shown:
        seconds = f' in {scores["seconds"]:.1f} s' if 'seconds' in scores else ''
        print(f'{result.content["text"]}: {len(sentences)} sentences{seconds}, '
              + ', '.join(f'{key} {value}' for key, value in result.how.items()), file=people)
      for line in metric_lines(metrics[shown:]):
        print(line, file=people, flush=True)
    shown = len(metrics)
  for line in more_lines(scores):
    print(line, file=people)
  if result.path:
    print(f'also in {result.path}', file=people)
  return {'step': result.content['steps'][-1], **{row['name']: row['score'] for row in metrics},
          f'{metrics[0]["name"]}_interval_95': metrics[0]['interval_95']}


def show_examples(text: Text, answers: Sequence, count: int, people: TextIO):
  """Prints up to `count` translations beside their references, taken evenly from the text."""
  count = min(count, len(text.sources))
  for index in (number * len(text.sources) // count for number in range(count)):
    print(f'  source       {text.sources[index]}\n  reference    {text.references[0][index]}\n'
          f'  translation  {answers[index].text}\n', file=people)


def print_table(result: Result, rows: Sequence[dict[str, Any]]):
  """Prints the scores of all checkpoints, marks the best, and writes them.

  Args:
    result: the result to write.
    rows: the row that `report` returned for each checkpoint; without any, nothing is printed.
  """
  if not rows:
    return
  _, headline, *_ = rows[0]
  # A metric may have been left out for some of them.
  metrics = dict.fromkeys(name for row in rows for name in row
                          if name not in ('step', f'{headline}_interval_95'))
  best = max(rows, key=lambda row: row[headline])
  print(f'\n{"step":>9}' + ''.join(f'{metric:>11}' for metric in metrics))
  for row in rows:
    line = f'{row["step"]:9}' + ''.join(
        f'{row[metric]:11.2f}' if metric in row else f'{"":11}' for metric in metrics)
    print(f'{line}  *' if row is best else line.rstrip())
  if result.path:
    result.write({'steps': [row['step'] for row in rows], 'checkpoints': rows})
    print(f'also in {result.path}')
