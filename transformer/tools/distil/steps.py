"""The commands of a recipe, and the student's text; what a stop leaves is gone on with."""

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from absl import flags, logging

from transformer import files
from transformer.data.text.sources import open_corpus
from transformer.data.text.text_files import is_blank, read_lines
from transformer.errors import Preempted, UserError
from transformer.evaluation.texts import split_files
from transformer.system import installation
from transformer.system.signals import EXIT_STATUS, handling
from transformer.tools.distil.recipe import DIRECTIONS, Recipe, without_corpora, write_settings


class Step(NamedTuple):
  """A command of a recipe."""

  name: str  # of the model that is trained, or of the teachers that translate
  command: list[str]  # the command line of train.py or eval.py
  results: list[Path]  # files that are there once it is done; train.py sees itself whether it is


def steps(recipe: Recipe, workdir: Path) -> Iterator[Step]:
  """Yields all steps in order; before the last one, `carry_out` makes the student's text."""

  def train(name: str, results: list[Path]) -> Step:
    return Step(
      name,
      [
        sys.executable,
        str(installation.folder() / 'train.py'),
        f'--config={workdir / name}.py',
        f'--workdir={workdir / name}',
      ],
      results,
    )

  for translator, teachers in recipe.translators.items():
    paths = {corpus: translation_path(workdir, translator, corpus) for corpus in recipe.names}
    yield from (train(name, list(paths.values())) for name in teachers)
    first, *others = [workdir / name for name in teachers]
    ensemble = flags.CsvListSerializer(',').serialize(list(map(str, others)))
    for corpus, path in paths.items():
      source = split_files(recipe.teachers[teachers[0]].data, corpus)[0].expanduser().absolute()
      yield Step(
        translator,
        [
          sys.executable,
          str(installation.folder() / 'eval.py'),
          f'--workdir={first}',
          *([f'--ensemble={ensemble}'] if others else []),
          f'--checkpoint={recipe.translating["checkpoint"]}',
          f'--average={recipe.translating["average"]}',
          f'--source={source}',
          f'--output={path}',
        ],
        [path],
      )
  yield train('student', [])


def translation_path(workdir: Path, translator: str, corpus: str) -> Path:
  """Returns the file of the translation of a corpus; `translator` is a name of `translators`."""
  name = corpus.replace('%', '%25').replace('/', '%2F')  # As in addresses: no two are the same.
  return workdir / 'translations' / f'{translator}.{name}'


def carry_out(recipe: Recipe, workdir: Path, start: Callable[[Sequence[str]], int]):
  """Does what is not done yet; `start` runs a command and returns its status."""
  for name, command, results in steps(recipe, workdir):
    if results and all(path.exists() for path in results):
      continue
    if name == 'student' and (empty := make_text(recipe, workdir)):
      logging.info('the student is trained without %s', ', '.join(empty))
      write_settings(workdir, 'student', without_corpora(recipe.student, empty))
    logging.info('%s: %s', name, shlex.join(command[1:]))
    if status := start(command):
      raise UserError(
        f'{name}: {Path(command[1]).name} ended with status {status}, for the reason '
        f'above; start this again to go on'
      )
  logging.info(
    'score it with: %s --workdir=%s',
    installation.spell_commands('python eval.py'),
    shlex.quote(str(workdir / 'student')),
  )


def run(command: Sequence[str]) -> int:
  """Runs a command, which gets the signals of this process, and returns its status."""
  process, signals = subprocess.Popen(command), []

  def pass_on(number, _):
    signals.append(number)
    process.send_signal(number)

  with handling(pass_on):
    status = process.wait()
  if signals or status == EXIT_STATUS:
    raise Preempted('the command that it ran was stopped; the same command goes on from there')
  return status


def make_text(recipe: Recipe, workdir: Path) -> list[str]:
  """Links the files that there are, writes the new pairs, and returns the corpora without any."""
  data, own = next(iter(recipe.teachers.values())).data, recipe.student.data
  for split in filter(None, (*recipe.names, *own.valid_sets.values(), own.test)):
    for path, link in zip(
      sorted(split_files(data, split)), sorted(split_files(own, split)), strict=True
    ):
      path = path.expanduser().absolute()
      if path.exists() and not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
  originals = {corpus: list(open_corpus(own, corpus)[:]) for corpus in recipe.names}
  known, empty = {pair for pairs in originals.values() for pair in pairs}, []
  for direction in DIRECTIONS:
    translators = [name for name in recipe.translators if name.startswith(direction)]
    for corpus in recipe.names if translators else ():
      made = [
        pair
        for name in translators
        for pair in _with_translations(
          originals[corpus], direction, translation_path(workdir, name, corpus)
        )
      ]
      new = [
        pair for pair in dict.fromkeys(made) if pair not in known and not any(map(is_blank, pair))
      ]
      known.update(new)
      logging.info(
        '%s_%s: %s of %s pairs are new', corpus, direction, f'{len(new):,}', f'{len(made):,}'
      )
      if not new:
        empty.append(f'{corpus}_{direction}')
      for side, language in enumerate((own.source_language, own.target_language)):
        files.write(
          workdir / 'text' / f'{corpus}_{direction}.{language}',
          ''.join(f'{pair[side]}\n' for pair in new).encode(),
        )
  return empty


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
  return [
    (source, line) if direction == 'forward' else (line, target)
    for (source, target), line in zip(pairs, lines, strict=True)
  ]
