"""The commands of a recipe, and how they are carried out after a stop anywhere."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from absl import flags, logging

from transformer.errors import UserError
from transformer.evaluation.texts import split_files
from transformer.system import installation
from transformer.tools.distil.recipe import (
  Recipe,
  translation_path,
  without_corpora,
  write_settings,
)
from transformer.tools.distil.student_text import make_text


def commands(recipe: Recipe, workdir: Path) -> Iterator[list[str]]:
  """Yields all commands, in order; between them, `carry_out` makes the student's text."""
  for translator, teachers in recipe.translators.items():
    yield from (train_command(name, workdir) for name in teachers)
    for corpus in recipe.names:
      yield translate_command(recipe, translator, corpus, workdir)
  yield train_command('student', workdir)


def train_command(name: str, workdir: Path) -> list[str]:
  """Returns the command that trains a model, or goes on with it."""
  return [sys.executable, str(installation.script('train')), f'--config={workdir / name}.py',
          f'--workdir={workdir / name}']


def translate_command(recipe: Recipe, translator: str, corpus: str, workdir: Path) -> list[str]:
  """Returns the command with which teachers translate a corpus together, or one alone."""
  first, *others = recipe.translators[translator]
  how, ensemble = recipe.translating, [str(workdir / name) for name in others]
  output = _unfinished(translation_path(workdir, translator, corpus))
  source = split_files(recipe.teachers[first].data, corpus)[0].expanduser().absolute()
  return [sys.executable, str(installation.script('eval')), f'--workdir={workdir / first}',
          *([f'--ensemble={flags.CsvListSerializer(",").serialize(ensemble)}'] if others else []),
          f'--checkpoint={how.checkpoint}', f'--average={how.average}',
          f'--source={source}', f'--output={output}']


def _unfinished(path: Path) -> Path:
  return path.with_name(f'{path.name}.unfinished')


def carry_out(recipe: Recipe, workdir: Path, start: Callable[[Sequence[str]], int]):
  """Does what is not done yet.

  Args:
    recipe: from `plan`, after `begin`.
    workdir: the directory of all runs and texts.
    start: runs a command to its end, and returns its status.

  Raises:
    UserError: a command failed.
    Preempted: a command was asked to stop.
  """
  def run(name: str, command: Sequence[str]):
    logging.info('%s: %s', name, shlex.join(command[1:]))
    if status := start(command):
      raise UserError(f'{name}: {Path(command[1]).name} ended with status {status}, for the reason '
                      f'above; start this again to go on')

  for translator, teachers in recipe.translators.items():
    missing = [corpus for corpus in recipe.names
               if not translation_path(workdir, translator, corpus).exists()]
    if not missing:
      logging.info('%s has translated all text', translator)
      continue
    for name in teachers:
      run(name, train_command(name, workdir))
    for corpus in missing:
      path = translation_path(workdir, translator, corpus)
      run(translator, translate_command(recipe, translator, corpus, workdir))
      os.replace(_unfinished(path), path)
  if empty := make_text(recipe, workdir):
    logging.info('the student is trained without %s', ', '.join(empty))
    write_settings(workdir, 'student', without_corpora(recipe.student, empty))
  run('student', train_command('student', workdir))
  logging.info(installation.spell_commands('score it with: python eval.py --workdir=%s'),
               shlex.quote(str(workdir / 'student')))
