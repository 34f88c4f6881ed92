"""The models of a recipe of teachers and a student, and the record of its settings."""

import inspect
import itertools
import runpy
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer import files
from transformer.commands.config_file import changed, config_file, plain_settings
from transformer.config import Config, flatten
from transformer.data.config import DataConfig
from transformer.data.text.sources import open_corpus
from transformer.errors import UserError, type_and_message

DIRECTIONS = ('forward', 'back')
_RECORD = 'diversify.json'


class Translating(NamedTuple):
  """How teachers translate.

  Attributes:
    ensemble: whether those of a direction translate together, by their mean probabilities.
    checkpoint: the checkpoint of each, `best` or `latest`.
    average: the number of checkpoints of each that are averaged.
  """

  ensemble: bool = False
  checkpoint: str = 'best'
  average: int = 1


_AS_EVAL_DOES = Translating()


class Recipe(NamedTuple):
  """The models to train.

  Attributes:
    names: the training corpora that there are.
    teachers: the settings of each teacher, by its name, such as `forward_1`.
    student: the settings of the student.
    translating: how teachers translate.
  """

  names: tuple[str, ...]
  teachers: Mapping[str, Config]
  student: Config
  translating: Translating = _AS_EVAL_DOES

  @property
  def translators(self) -> dict[str, list[str]]:
    """The teachers that translate together, by the name of their translations."""
    if not self.translating.ensemble:
      return {name: [name] for name in self.teachers}
    return {direction: members for direction in DIRECTIONS
            if (members := [name for name in self.teachers if name.startswith(direction)])}


def load_models(filename: str, overrides: Mapping[str, Any], student: ConfigDict,
                directions: Sequence[str] = DIRECTIONS) -> dict[str, Config]:
  """Returns the settings of `student`, and of `forward` and `back`.

  Args:
    filename: a config file, perhaps with a colon and an argument. If its `get_config` takes
      `model`, it has settings for each of them.
    overrides: the settings of the command line, by dotted name.
    student: the settings of the file with those of the command line.
    directions: those of the teachers. A file for each model need not have others.

  Raises:
    UserError: the file has settings for each model, and the argument chooses one; or it lacks one
      of them.
  """
  filename, _, argument = filename.partition(':')
  get_config = runpy.run_path(filename)['get_config']

  def load(model: str) -> Config:
    try:
      settings = get_config(model)
    except UserError:
      raise
    except Exception as error:  # A program may raise anything.
      raise UserError(f'{filename}: get_config({model!r}) failed: {type_and_message(error)}; where '
                      f'get_config takes model, it must take student, '
                      f'{" and ".join(directions)}') from error
    settings.update_from_flattened_dict(overrides)
    return Config.from_dict(settings.to_dict())

  if 'model' in inspect.signature(get_config).parameters:
    if argument:
      raise UserError(f'all models of {filename} are trained; leave out :{argument}')
    return {model: load(model) for model in ('student', *directions)}
  tree = student.to_dict()
  data = tree['data']
  same = Config.from_dict(tree)
  return {'student': same, 'forward': same,
          'back': Config.from_dict(tree | {'data': data | _swapped(same.data)})}


def _swapped(data: DataConfig) -> dict[str, Any]:
  """Returns the settings of the other direction: the languages, and their own vocabularies."""
  changes = {'source_language': data.target_language, 'target_language': data.source_language}
  if data.shared_vocabulary:
    return changes
  if data.vocabulary or data.source_vocabulary:
    changes |= {'vocabulary': data.source_vocabulary, 'source_vocabulary': data.vocabulary}
  if data.source_vocabulary_size is not None:
    changes |= {'vocabulary_size': data.source_vocabulary_size,
                'source_vocabulary_size': data.vocabulary_size}
  return changes


def plan(models: Mapping[str, Config], directions: Sequence[str], count: int, workdir: Path,
         translating: Translating = _AS_EVAL_DOES) -> Recipe:
  """Checks the flags and returns the recipe.

  Args:
    models: from `load_models`.
    directions: some of `DIRECTIONS`.
    count: the number of teachers of each direction.
    workdir: the directory of all runs and texts.
    translating: how teachers translate.

  Raises:
    UserError: a direction does not exist, `back` has other languages, the text is not that of
      files below `data.dir`, an ensemble has one teacher, teachers average
      checkpoints up to the best one or keep too few, or the student has other text.
  """
  if not directions or set(directions) - set(DIRECTIONS) or len(set(directions)) < len(directions):
    raise UserError(f'--directions must be {", ".join(DIRECTIONS)} or one of them; got '
                    f'{",".join(directions)!r}')
  student = models['student']
  swapped = student.data.target_language, student.data.source_language
  back = models['back'].data if 'back' in directions else None
  if back and (back.source_language, back.target_language) != swapped:
    raise UserError(f'the settings of back must translate from data.source_language={swapped[0]} '
                    f'to data.target_language={swapped[1]}; got {back.source_language} and '
                    f'{back.target_language}')
  if student.data.source != 'text':
    raise UserError(f'teachers translate text files, so data.source must be text; got '
                    f'{student.data.source}')
  if translating.ensemble and count < 2:
    raise UserError('--ensemble needs --teachers=2 or more; got 1')
  if translating.average > 1 and translating.checkpoint == 'best':
    raise UserError(f'--average={translating.average} needs --checkpoint=latest: fewer checkpoints '
                    f'than that may be kept up to the best one')
  for name in directions:
    if (keep := models[name].train.keep) < translating.average:
      raise UserError(f'--average={translating.average} needs as many checkpoints of each teacher; '
                      f'train.keep of {name} is {keep}; raise it, or lower --average')
  names = models[directions[0]].data.train
  for name in names:
    if Path(name).is_absolute() or '..' in Path(name).parts:
      raise UserError(f'the student\'s text is made beside the links to the corpora, so names in '
                      f'data.train must lie below data.dir; got {name}')
  teachers = {f'{direction}_{number}': changed(
      models[direction], {'seed': models[direction].seed + number - 1})
              for direction in directions for number in range(1, count + 1)}
  return Recipe(names, teachers, changed(
      _with_new_text(student, names, directions), {'data.dir': str(workdir / 'text')}), translating)


def _with_new_text(student: Config, names: Sequence[str], directions: Sequence[str]) -> Config:
  """Returns the student's settings with the new corpora, and without those of other directions.

  Raises:
    UserError: the student's `data.train` has neither the teachers' corpora nor these and the new
      ones.
  """
  new = {direction: [f'{name}_{direction}' for name in names] for direction in DIRECTIONS}
  everything = (*names, *itertools.chain.from_iterable(new.values()))
  train = student.data.train
  if train == names:
    return changed(student, {'data.train': (
        *names, *itertools.chain.from_iterable(new[direction] for direction in directions))})
  if sorted(train) != sorted(everything):
    raise UserError(f'data.train of student must be that of the teachers, {", ".join(names)}, or '
                    f'{", ".join(everything)}; got {", ".join(train)}')
  return without_corpora(student, [name for direction in DIRECTIONS if direction not in directions
                                   for name in new[direction]])


def begin(recipe: Recipe, workdir: Path):
  """Writes the settings of all models, and a record of the recipe and its text.

  Raises:
    UserError: the directory has the record of another recipe or other text; names what differs.
  """
  models = {**recipe.teachers, 'student': recipe.student}
  data = next(iter(recipe.teachers.values())).data
  about = {'text': {corpus: open_corpus(data, corpus).fingerprint for corpus in recipe.names},
           'translating': recipe.translating._asdict(),
           **{name: plain_settings(config) for name, config in models.items()}}
  now = flatten(about)
  path = workdir / _RECORD
  if path.exists():
    record = files.read_sealed(path, 'the recipe')
    # A setting that came later has the value that earlier versions behaved by.
    earlier = {name: plain_settings(Config.from_saved({})) for name in models if name in record}
    earlier['translating'] = _AS_EVAL_DOES._asdict()
    before = flatten(earlier) | flatten(record)
    for name in sorted(before.keys() | now.keys()):
      if before.get(name) != now.get(name):
        raise UserError(f'{workdir} was begun with another recipe: {name} was '
                        f'{before.get(name, "not there")}, is {now.get(name, "not there")}; choose '
                        f'another --workdir, or the same flags')
  for name, config in models.items():
    write_settings(workdir, name, config)
  for folder in ('text', 'translations'):
    (workdir / folder).mkdir(exist_ok=True)
  files.write_sealed(path, about)


def write_settings(workdir: Path, name: str, config: Config):
  """Writes the settings of a model as a config file."""
  files.write(workdir / f'{name}.py', config_file(f'The settings of {name}.', config, ()))


def without_corpora(config: Config, corpora: Collection[str]) -> Config:
  """Returns settings that leave some training corpora out, with their weights."""
  data = config.data
  kept = [number for number, name in enumerate(data.train) if name not in corpora]

  def pick(values):
    return tuple(values[number] for number in kept)

  return changed(config, {
      'data.train': pick(data.train),
      'data.train_weights': pick(data.train_weights) if data.train_weights else (),
      'data.train_stages': tuple((stage[0], *pick(stage[1:])) for stage in data.train_stages)})


def translation_path(workdir: Path, translator: str, corpus: str) -> Path:
  """Returns the file of the translation of a corpus; `translator` is a name of `translators`."""
  name = corpus.replace('%', '%25').replace('/', '%2F')  # As in addresses: no two are the same.
  return workdir / 'translations' / f'{translator}.{name}'
