"""The commands of a recipe, and the student's text; what a stop leaves is gone on with."""

import itertools
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags, logging

from transformer import files
from transformer.data.config import DataConfig
from transformer.data.text.sources import open_corpus
from transformer.data.text.text_files import is_blank, read_lines
from transformer.errors import Preempted, UserError
from transformer.evaluation.texts import split_files
from transformer.system import installation
from transformer.system.signals import EXIT_STATUS, handling
from transformer.tools.distil.recipe import (
  DIRECTIONS,
  Recipe,
  without_corpora,
  write_settings,
)


class Step(NamedTuple):
  """A command of a recipe."""

  name: str  # of the model that is trained, or of the teachers that translate
  command: list[str]  # the command line of train.py or eval.py
  results: list[
    Path
  ]  # files that are there once it is done; train.py sees itself whether it is


def steps(recipe: Recipe, workdir: Path) -> Iterator[Step]:
  """Yields all steps in order; before the last one, `carry_out` makes the student's text."""

  for translator, teachers in recipe.translators.items():
    paths = {
      corpus: translation_path(workdir, translator, corpus) for corpus in recipe.names
    }
    for name in teachers:
      yield Step(name, _train(workdir, name), list(paths.values()))
    for corpus, path in paths.items():
      source = (
        split_files(recipe.teachers[teachers[0]].data, corpus)[0]
        .expanduser()
        .absolute()
      )
      command = _translate(workdir, teachers, recipe.translating, source, path)
      yield Step(translator, command, [path])
  yield Step('student', _train(workdir, 'student'), [])


def _train(workdir: Path, name: str) -> list[str]:
  """Returns the command that trains a model."""
  return [
    sys.executable,
    str(installation.folder() / 'train.py'),
    f'--config={workdir / name}.py',
    f'--workdir={workdir / name}',
  ]


def _translate(
  workdir: Path,
  teachers: Sequence[str],
  translating: Mapping[str, Any],
  source: Path,
  output: Path,
) -> list[str]:
  """Returns the command by which teachers translate a file together."""
  first, *others = [str(workdir / name) for name in teachers]
  command = [
    sys.executable,
    str(installation.folder() / 'eval.py'),
    f'--workdir={first}',
  ]
  if others:
    command.append(f'--ensemble={flags.CsvListSerializer(",").serialize(others)}')
  return [
    *command,
    f'--checkpoint={translating["checkpoint"]}',
    f'--average={translating["average"]}',
    f'--source={source}',
    f'--output={output}',
  ]


def translation_path(workdir: Path, translator: str, corpus: str) -> Path:
  """Returns the file of the translation of a corpus; `translator` is a name of `translators`."""
  name = corpus.replace('%', '%25').replace(
    '/', '%2F'
  )  # As in addresses: no two are the same.
  return workdir / 'translations' / f'{translator}.{name}'


def carry_out(recipe: Recipe, workdir: Path, start: Callable[[Sequence[str]], int]):
  """Does what is not done yet; `start` runs a command and returns its status."""
  for name, command, results in steps(recipe, workdir):
    if results and all(path.exists() for path in results):
      continue
    if name == 'student':
      _prepare_student(recipe, workdir)
    logging.info('%s: %s', name, shlex.join(command[1:]))
    status = start(command)
    if status:
      raise UserError(
        f'{name}: {Path(command[1]).name} ended with status {status}, for the reason '
        f'above; start this again to go on'
      )
  logging.info(
    'score it with: %s --workdir=%s',
    installation.spell_commands('python eval.py'),
    shlex.quote(str(workdir / 'student')),
  )


def _prepare_student(recipe: Recipe, workdir: Path):
  """Makes the student's text; leaves out corpora without a pair."""
  empty = make_text(recipe, workdir)
  if empty:
    logging.info('the student is trained without %s', ', '.join(empty))
    write_settings(workdir, 'student', without_corpora(recipe.student, empty))


def run(command: Sequence[str]) -> int:
  """Runs a command, which gets the signals of this process, and returns its status."""
  process = subprocess.Popen(command)
  signals = []

  def pass_on(number, _):
    signals.append(number)
    process.send_signal(number)

  with handling(pass_on):
    status = process.wait()
  if signals or status == EXIT_STATUS:
    raise Preempted(
      'the command that it ran was stopped; the same command goes on from there'
    )
  return status


def make_text(recipe: Recipe, workdir: Path) -> list[str]:
  """Links the files that there are, writes the new pairs, and returns the corpora without any."""
  data = next(iter(recipe.teachers.values())).data
  of_student = recipe.student.data
  _link_files(recipe, data, of_student)
  originals = {
    corpus: list(open_corpus(of_student, corpus)[:]) for corpus in recipe.names
  }
  known = set(itertools.chain(*originals.values()))
  empty = []
  for direction in DIRECTIONS:
    translators = [name for name in recipe.translators if name.startswith(direction)]
    for corpus in recipe.names if translators else ():
      made = []
      for name in translators:
        path = translation_path(workdir, name, corpus)
        made += _with_translations(originals[corpus], direction, path)
      new = [pair for pair in dict.fromkeys(made) if _is_new(pair, known)]
      known.update(new)
      name = f'{corpus}_{direction}'
      logging.info(
        '%s: %s of %s pairs are new', name, f'{len(new):,}', f'{len(made):,}'
      )
      if not new:
        empty.append(name)
      for side, language in enumerate(
        (of_student.source_language, of_student.target_language)
      ):
        lines = ''.join(f'{pair[side]}\n' for pair in new)
        files.write(workdir / 'text' / f'{name}.{language}', lines.encode())
  return empty


def _link_files(recipe: Recipe, data: DataConfig, of_student: DataConfig):
  """Links the teachers' files that there are into the folder of the student's text."""
  for split in (*recipe.names, *of_student.valid_sets.values(), of_student.test):
    if not split:
      continue
    there = sorted(split_files(data, split))
    for path, link in zip(there, sorted(split_files(of_student, split)), strict=True):
      path = path.expanduser().absolute()
      if path.exists() and not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)


def _is_new(pair: tuple[str, str], known: Set[tuple[str, str]]) -> bool:
  return pair not in known and not any(map(is_blank, pair))


def _with_translations(
  pairs: Sequence[tuple[str, str]], direction: str, path: Path
) -> list[tuple[str, str]]:
  """Returns the pairs with one side replaced by the lines of a file."""
  lines = read_lines(path)
  if len(lines) != len(pairs):
    raise UserError(
      f'{path} should have a line for each of {len(pairs)} pairs; it has '
      f'{len(lines)}; remove it, and start this again'
    )
  if direction == 'forward':
    return [(source, line) for (source, _), line in zip(pairs, lines, strict=True)]
  return [(line, target) for (_, target), line in zip(pairs, lines, strict=True)]
