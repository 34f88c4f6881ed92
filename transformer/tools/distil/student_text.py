"""The text of the student: links to the files that there are, and pairs with translations."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from absl import logging

from transformer import files
from transformer.data.text.sources import open_corpus
from transformer.errors import UserError
from transformer.evaluation.texts import split_files
from transformer.tools.distil.recipe import DIRECTIONS, Recipe, translation_path


def make_text(recipe: Recipe, workdir: Path) -> list[str]:
  """Makes the student's text: links to the files that there are, and the new pairs.

  Returns:
    The names of the new corpora that have no pair.
  """
  data = next(iter(recipe.teachers.values())).data
  languages = recipe.student.data.source_language, recipe.student.data.target_language
  for split in filter(None, (*recipe.names, *recipe.student.data.valid_sets.values(),
                             recipe.student.data.test)):
    for path, link in zip(*(sorted(split_files(each, split)) for each in (
        data, recipe.student.data)), strict=True):
      path = path.expanduser().absolute()
      if path.exists() and not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
  originals = {corpus: list(open_corpus(recipe.student.data, corpus)[:])
               for corpus in recipe.names}
  known, empty = {pair for pairs in originals.values() for pair in pairs}, []
  for direction in DIRECTIONS:
    translators = [name for name in recipe.translators if name.startswith(direction)]
    for corpus in recipe.names if translators else ():
      pairs = originals[corpus]
      made = [pair for name in translators for pair in _with_translations(
          pairs, direction, translation_path(workdir, name, corpus))]
      new = list(new_pairs(known, made))
      known.update(new)
      logging.info('%s_%s: %s of %s pairs are new', corpus, direction, f'{len(new):,}',
                   f'{len(made):,}')
      if not new:
        empty.append(f'{corpus}_{direction}')
      for side, language in enumerate(languages):
        files.write(workdir / 'text' / f'{corpus}_{direction}.{language}',
                    ''.join(f'{pair[side]}\n' for pair in new).encode())
  return empty


def _with_translations(pairs: Sequence[tuple[str, str]], direction: str,
                       path: Path) -> list[tuple[str, str]]:
  """Returns the pairs with one side replaced by the lines of a file."""
  lines = path.read_bytes().decode('utf-8').split('\n')[:-1]
  if len(lines) != len(pairs):
    raise UserError(f'{path} should have a line for each of {len(pairs)} pairs; it has '
                    f'{len(lines)}; remove it, and start this again')
  return [(source, line) if direction == 'forward' else (line, target)
          for (source, target), line in zip(pairs, lines, strict=True)]


def new_pairs(known: Iterable[tuple[str, str]],
              made: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
  """Yields the pairs that are neither known nor a repetition, in order, if no side is blank."""
  seen = set(known)
  for pair in made:
    if pair not in seen and all(side.strip() for side in pair):
      seen.add(pair)
      yield pair
