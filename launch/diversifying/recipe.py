"""The models of a recipe of teachers and a student, and the record of its settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from launch.config_file import changed, config_file
from transformer import files
from transformer.config import Config, flatten
from transformer.data.sources import open_corpus
from transformer.errors import UserError

DIRECTIONS = ('forward', 'back')
_RECORD = 'diversify.json'


class Recipe(NamedTuple):
  """The models to train.

  Attributes:
    names: the training corpora that there are.
    teachers: the settings of each teacher, by its name, such as `forward_1`.
    student: the settings of the student.
  """

  names: tuple[str, ...]
  teachers: Mapping[str, Config]
  student: Config


def plan(models: Mapping[str, Config], directions: Sequence[str], count: int,
         workdir: Path) -> Recipe:
  """Checks the flags and returns the recipe.

  Args:
    models: from `load_models`.
    directions: some of `DIRECTIONS`.
    count: the number of teachers of each direction.
    workdir: the directory of all runs and texts.

  Raises:
    UserError: a direction does not exist, `back` has other languages, or the text is not that of
      files.
  """
  if not directions or set(directions) - set(DIRECTIONS) or len(set(directions)) < len(directions):
    raise UserError(f'--directions must be {", ".join(DIRECTIONS)} or one of them; got '
                    f'{",".join(directions)!r}')
  student, back = models['student'], models['back'].data
  swapped = student.data.target_language, student.data.source_language
  if 'back' in directions and (back.source_language, back.target_language) != swapped:
    raise UserError(f'the settings of back must translate from data.source_language={swapped[0]} '
                    f'to data.target_language={swapped[1]}; got {back.source_language} and '
                    f'{back.target_language}')
  if student.data.source != 'text':
    raise UserError(f'teachers translate text files, so data.source must be text; got '
                    f'{student.data.source}')
  names = models['forward'].data.train
  teachers = {f'{direction}_{number}': changed(
      models[direction], {'seed': models[direction].seed + number - 1})
              for direction in directions for number in range(1, count + 1)}
  new = tuple(f'{name}_{direction}' for direction in directions for name in names)
  return Recipe(names, teachers, changed(student, {
      'data.dir': str(workdir / 'text'), 'data.train': (*names, *new)}))


def begin(recipe: Recipe, workdir: Path):
  """Writes the settings of all models, and a record of the recipe and its text.

  Raises:
    UserError: the directory has the record of another recipe or other text; names what differs.
  """
  models = {**recipe.teachers, 'student': recipe.student}
  data = next(iter(recipe.teachers.values())).data
  about = {'text': {corpus: open_corpus(data, corpus).fingerprint for corpus in recipe.names},
           **{name: _plain(config) for name, config in models.items()}}
  now = flatten(about)
  path = workdir / _RECORD
  if path.exists():
    before = flatten(files.read_sealed(path, 'the recipe'))
    for name in sorted(before.keys() | now.keys()):
      if before.get(name) != now.get(name):
        raise UserError(f'{workdir} was begun with another recipe: {name} was '
                        f'{before.get(name, "not there")}, is {now.get(name, "not there")}; choose '
                        f'another --workdir, or the same flags')
  for name, config in models.items():
    files.write(workdir / f'{name}.py', config_file(f'The settings of {name}.', config, ()))
  for folder in ('text', 'translations'):
    (workdir / folder).mkdir(exist_ok=True)
  files.write_sealed(path, about)


def _plain(config: Config) -> dict[str, Any]:
  """Returns settings as JSON gives them back."""
  return {name: list(value) if isinstance(value, tuple) else value
          for name, value in flatten(config.to_dict()).items()}


def translation(workdir: Path, teacher: str, corpus: str) -> Path:
  """Returns the file of a teacher's translation of a corpus."""
  return workdir / 'translations' / f'{teacher}.{corpus.replace("/", "_")}'
