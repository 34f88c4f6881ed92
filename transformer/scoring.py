"""What is told, and kept, of the translations of a text that has references."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from absl import logging

from transformer import command_line, files
from transformer.errors import UserError
from transformer.inference import results
from transformer.training import run_directory
from transformer.training.curves import draw_scores


class Text(NamedTuple):
  """Sentences and their references.

  Attributes:
    name: what results call it.
    sources: the sentences.
    references: as many sequences as there are references of each; none, if it is only translated.
  """

  name: str
  sources: list[str]
  references: list[list[str]]


def writable_folder(workdir: str, asked: str | None) -> Path | None:
  """Finds where results go, before the work.

  Args:
    workdir: the run's directory, in which they go to `eval/` if there is no other folder.
    asked: another folder.

  Returns:
    The folder; None, with a warning, where nothing can be written and no folder was asked for.

  Raises:
    UserError: nothing can be written to the folder that was asked for.
  """
  if asked:
    command_line.check_folder('results', folder := Path(asked).expanduser())
    return folder
  folder = Path(workdir).expanduser() / run_directory.EVALUATIONS
  try:
    command_line.check_folder('workdir', folder)
  except UserError as error:
    logging.warning('scores are printed and not kept: %s; --results=FOLDER keeps them', error)
    return None
  return folder


def show_examples(text: Text, answers: Sequence, count: int, people: TextIO):
  """Prints up to `count` translations beside their references, taken evenly from the text."""
  count = min(count, len(text.sources))
  for index in (number * len(text.sources) // count for number in range(count)):
    print(f'  source       {text.sources[index]}\n  reference    {text.references[0][index]}\n'
          f'  translation  {answers[index].text}\n', file=people)


def report(place: results.Place, run, text: Text, decoding: results.Decoding, answers: Sequence,
           seconds: float, people: TextIO) -> dict[str, Any]:
  """Scores translations, prints the most of what is found, and then writes all of it.

  Args:
    place: where it is written.
    run: the `Run` that translated.
    text: what was translated.
    decoding: how.
    answers: the translations.
    seconds: that they took.
    people: where it is printed.

  Returns:
    The row of `tell_table`: the step, and the score by each metric's name.

  Raises:
    UserError: it cannot be written; it is printed.
  """
  from transformer.inference import evaluation  # Translating needs no sacreBLEU.
  result, sentences = evaluation.evaluate(
      text.sources, text.references, answers, seconds, decoding.config.bleu_tokenize,
      run.config.data.target_language)
  how = ', '.join(f'{key} {value}' for key, value in place.how.items())
  print(f'{result["details"]}\n{result["signature"]}\n{text.name}: BLEU {result["bleu"]:.2f}, '
        f'{len(text.sources)} sentences in {seconds:.1f} s, {how}', file=people)
  print(*evaluation.in_words(result), sep='\n', file=people)
  if place.folder:
    results.write(place.folder, place.stem, result | {
        'text': text.name, 'steps': run.steps, 'decode': dataclasses.asdict(decoding.config),
        'seed': decoding.seed if decoding.config.sample else None, 'ensemble': decoding.ensemble,
        'workdir': str(run.workdir.resolve()), 'commit': run_directory.commit(),
        'command': sys.argv[1:]}, sentences)
    print(f'also in {place.folder / place.stem}.json', file=people)
  return {'step': run.steps[-1], **{each['name']: each['score'] for each in result['metrics']},
          'BLEU_interval_95': result['metrics'][0]['interval_95']}


def tell_table(folder: Path | None, name: str, rows: Sequence[dict[str, Any]]):
  """Prints what each checkpoint scored, the best marked; writes it, and draws its BLEU.

  Args:
    folder: where results go; None if they are not kept.
    name: the text's.
    rows: what `report` returned for each checkpoint.
  """
  metrics = [key for key in rows[0] if key not in ('step', 'BLEU_interval_95')]
  best = max(rows, key=lambda row: row['BLEU'])
  print(f'\n{"step":>9}' + ''.join(f'{metric:>9}' for metric in metrics))
  for row in rows:
    print(f'{row["step"]:9}' + ''.join(f'{row[metric]:9.2f}' for metric in metrics)
          + '  *' * (row is best))
  if folder:
    files.write_json(folder / f'{name}.all.json', rows)
    draw_scores(name, [row['step'] for row in rows], [row['BLEU'] for row in rows],
                [row['BLEU_interval_95'] for row in rows], folder / f'{name}.all.svg')
    print(f'also in {folder / name}.all.json and .svg')
