"""The commands of a recipe, and how they are carried out after a stop anywhere."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from absl import logging

from launch.diversifying.recipe import Recipe, translation, without, write_settings
from launch.diversifying.student_text import make_text
from transformer.errors import UserError
from transformer.evaluation.texts import split_files

ROOT = Path(__file__).resolve().parents[2]


def commands(recipe: Recipe, workdir: Path) -> Iterator[list[str]]:
  """Yields all commands, in order; between them, `carry_out` makes the student's text."""
  for name in recipe.teachers:
    yield train_command(name, workdir)
    for corpus in recipe.names:
      yield translate_command(recipe, name, corpus, workdir)
  yield train_command('student', workdir)


def train_command(name: str, workdir: Path) -> list[str]:
  """Returns the command that trains a model, or goes on with it."""
  return [sys.executable, str(ROOT / 'train.py'), f'--config={workdir / name}.py',
          f'--workdir={workdir / name}']


def translate_command(recipe: Recipe, teacher: str, corpus: str, workdir: Path) -> list[str]:
  """Returns the command with which a teacher translates a corpus."""
  source = split_files(recipe.teachers[teacher].data, corpus)[0].expanduser().absolute()
  return [sys.executable, str(ROOT / 'eval.py'), f'--workdir={workdir / teacher}',
          f'--source={source}', f'--output={_unfinished(translation(workdir, teacher, corpus))}']


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

  for name in recipe.teachers:
    missing = [corpus for corpus in recipe.names
               if not translation(workdir, name, corpus).exists()]
    if not missing:
      logging.info('%s has translated all text', name)
      continue
    run(name, train_command(name, workdir))
    for corpus in missing:
      path = translation(workdir, name, corpus)
      run(name, translate_command(recipe, name, corpus, workdir))
      os.replace(_unfinished(path), path)
  if empty := make_text(recipe, workdir):
    logging.info('the student is trained without %s', ', '.join(empty))
    write_settings(workdir, 'student', without(recipe.student, empty))
  run('student', train_command('student', workdir))
  logging.info('score it with: python eval.py --workdir=%s', workdir / 'student')
