"""The models of a recipe of teachers and a student, and the record of its settings."""

import inspect
import runpy
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer import files
from transformer.commands.config_file import changed, config_file, plain_settings
from transformer.config import Config, flatten
from transformer.data.text.sources import open_corpus
from transformer.errors import UserError, refuse, shown

DIRECTIONS = ('forward', 'back')
# How teachers translate, as eval.py does by default: whether those of a direction do it together,
# which checkpoint of each, and how many are averaged.
TRANSLATING = {'ensemble': False, 'checkpoint': 'best', 'average': 1}
_RECORD = 'diversify.json'


class Recipe(NamedTuple):
  """The models to train, by their settings."""

  names: tuple[str, ...]  # the training corpora that there are
  teachers: Mapping[str, Config]  # by their names, such as `forward_1`
  student: Config
  translating: Mapping[str, Any]  # see `TRANSLATING`

  @property
  def translators(self) -> dict[str, list[str]]:
    """The teachers that translate together, by the name of their translations."""
    if not self.translating['ensemble']:
      return {name: [name] for name in self.teachers}
    together = {}
    for name in self.teachers:
      together.setdefault(name.partition('_')[0], []).append(name)
    return together


def load_models(
  filename: str,
  overrides: Mapping[str, Any],
  student: ConfigDict,
  directions: Sequence[str],
) -> dict[str, Config]:
  """Returns the settings of `student`, and of the teachers of each direction.

  A config file whose `get_config` takes `model` has settings for each of them, which `overrides` of
  the command line change. `student` has the file's settings with those of the command line.
  """
  if sorted(directions) not in (['back'], ['forward'], ['back', 'forward']):
    raise UserError(
      f'--directions must be {", ".join(DIRECTIONS)} or one of them; got '
      f'{shown(",".join(directions))}'
    )
  filename, _, argument = filename.partition(':')
  get_config = runpy.run_path(filename)['get_config']
  if 'model' not in inspect.signature(get_config).parameters:
    same = Config.from_dict(student.to_dict())
    return {'student': same, 'forward': same, 'back': _swapped(same)}
  if argument:
    raise UserError(f'all models of {filename} are trained; leave out :{argument}')
  models = {model: get_config(model) for model in ('student', *directions)}
  for settings in models.values():
    settings.update_from_flattened_dict(overrides)
  return {
    model: Config.from_dict(settings.to_dict()) for model, settings in models.items()
  }


def _swapped(config: Config) -> Config:
  """Returns the settings of the other direction: the languages, and their own vocabularies."""
  data = config.data
  pairs = [('source_language', 'target_language')]
  if not data.shared_vocabulary:
    pairs.append(('vocabulary', 'source_vocabulary'))
    if data.source_vocabulary_size is not None:
      pairs.append(('vocabulary_size', 'source_vocabulary_size'))
  changes = {}
  for one, other in pairs:
    changes[f'data.{one}'] = getattr(data, other)
    changes[f'data.{other}'] = getattr(data, one)
  return changed(config, changes)


def plan(
  models: Mapping[str, Config],
  directions: Sequence[str],
  count: int,
  workdir: Path,
  translating: Mapping[str, Any] = TRANSLATING,
) -> Recipe:
  """Returns the recipe of `count` teachers of each direction; refuses what cannot be done."""
  student = models['student'].data
  names = models[directions[0]].data.train
  average = translating['average']
  keep = min(models[name].train.keep for name in directions)
  swapped = (student.target_language, student.source_language)
  back = swapped
  if 'back' in directions:
    data = models['back'].data
    back = (data.source_language, data.target_language)
  refuse(
    (
      back != swapped,
      f'the settings of back must translate from data.source_language={swapped[0]} to '
      f'data.target_language={swapped[1]}; got {" and ".join(back)}',
    ),
    (
      student.source != 'text',
      f'teachers translate text files, so data.source must be text; got {student.source}',
    ),
    (
      translating['ensemble'] and count < 2,
      '--ensemble needs --teachers=2 or more; got 1',
    ),
    (
      average > 1 and translating['checkpoint'] == 'best',
      f'--average={average} needs --checkpoint=latest: fewer checkpoints than that may be kept up '
      f'to the best one',
    ),
    (
      keep < average,
      f'--average={average} needs as many checkpoints of each teacher; train.keep '
      f'is {keep}; raise it, or lower --average',
    ),
    (
      any(map(_leaves_folder, names)),
      f"the student's text is made beside the links to the corpora, so names in data.train must "
      f'lie below data.dir; got {", ".join(names)}',
    ),
  )
  teachers = {}
  for direction in directions:
    first = models[direction]
    for number in range(count):
      teachers[f'{direction}_{number + 1}'] = changed(
        first, {'seed': first.seed + number}
      )
  own = _with_new_text(models['student'], names, directions)
  own = changed(own, {'data.dir': str(workdir / 'text')})
  return Recipe(names, teachers, own, translating)


def _leaves_folder(name: str) -> bool:
  """Returns whether the name of a corpus leads out of the folder of the data."""
  return Path(name).is_absolute() or '..' in Path(name).parts


def _with_new_text(
  student: Config, names: Sequence[str], directions: Sequence[str]
) -> Config:
  """Returns the student's settings with the new corpora, and without those of other directions."""
  new = []
  others = []
  for direction in dict.fromkeys([*directions, *DIRECTIONS]):
    corpora = [f'{name}_{direction}' for name in names]
    if direction in directions:
      new += corpora
    else:
      others += corpora
  train = student.data.train
  if train == names:
    return changed(student, {'data.train': (*names, *new)})
  if sorted(train) != sorted([*names, *new, *others]):
    raise UserError(
      f'data.train of student must be that of the teachers, {", ".join(names)}, or '
      f'{", ".join([*names, *new, *others])}; got {", ".join(train)}'
    )
  return without_corpora(student, others)


def without_corpora(config: Config, corpora: Collection[str]) -> Config:
  """Returns settings that leave some training corpora out, with their weights."""
  data = config.data
  kept = [number for number, name in enumerate(data.train) if name not in corpora]

  def pick(values):
    return tuple(values[number] for number in kept) if values else ()

  return changed(
    config,
    {
      'data.train': pick(data.train),
      'data.train_weights': pick(data.train_weights),
    },
  )


def begin(recipe: Recipe, workdir: Path):
  """Writes the settings of all models, and a record of the recipe and its text."""
  models = {**recipe.teachers, 'student': recipe.student}
  data = next(iter(recipe.teachers.values())).data
  about = {
    'text': {corpus: open_corpus(data, corpus).fingerprint for corpus in recipe.names},
    'translating': dict(recipe.translating),
    **{name: plain_settings(config) for name, config in models.items()},
  }
  path = workdir / _RECORD
  if path.exists():
    record = files.read_sealed(path, 'the recipe')
    before = flatten(record)
    now = flatten(about)
    for name in sorted(before.keys() | now.keys()):
      if before.get(name) != now.get(name):
        raise UserError(
          f'{workdir} was begun with another recipe: {name} was '
          f'{before.get(name, "not there")}, is {now.get(name, "not there")}; choose '
          f'another --workdir, or the same flags'
        )
  for name, config in models.items():
    write_settings(workdir, name, config)
  for folder in ('text', 'translations'):
    (workdir / folder).mkdir(exist_ok=True)
  files.write_sealed(path, about)


def write_settings(workdir: Path, name: str, config: Config):
  """Writes the settings of a model as a config file."""
  files.write(
    workdir / f'{name}.py', config_file(f'The settings of {name}.', config, ())
  )
