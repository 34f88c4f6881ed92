r"""Trains a student on what teachers translate: data diversification, distillation by sequences.

  python launch/diversify.py --config=configs/NAME.py --workdir=DIR [--teachers=K] \
      [--directions=forward,back] [--config.group.key=value …]

K teachers of each direction are trained, each with another seed. They translate the training text:
`forward` its sources, and `back` its targets. The student is trained on the original pairs and on
all new ones (Nguyen et al., 2020, "Data Diversification"). With --directions=forward, that is
distillation by sequences (Kim and Rush, 2016), with the original pairs kept.

The three models have the settings of --config, but for the languages of `back`. A config file whose
`get_config` takes `model` has settings for each: `student`, `forward` and `back`, as
configs/multi30k.py. DIR gets

  forward_1/ back_1/ … student/   the runs
  text/                           the student's text, with NAME_forward and NAME_back
  translations/                   what each teacher writes

The same command goes on after a stop, in the middle of any run. Test text is not touched: the last
line says how to score the student.
"""

import inspect
import os
import runpy
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags, logging
from ml_collections import ConfigDict, config_flags

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from launch.sweeping.config_file import config_file
from transformer import files
from transformer.commands import shared_flags
from transformer.config import Config, flatten
from transformer.data.sources import open_corpus
from transformer.errors import UserError
from transformer.evaluation.texts import split_files
from transformer.runs.lock import RunLock
from transformer.system import child_process, command_line, outputs

ROOT = Path(__file__).resolve().parents[1]
DIRECTIONS = ('forward', 'back')
_RECIPE = 'diversify.json'
_CONFIG = shared_flags.define_config()
_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of all runs and texts.')
_TEACHERS = flags.DEFINE_integer('teachers', 1, 'The number of teachers of each direction.')
_DIRECTIONS = flags.DEFINE_list('directions', list(DIRECTIONS), 'What teachers translate: forward '
                                'the sources, back the targets.')
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print the commands, and start none of them.')


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


def main(_):
  """Wires flags to the recipe."""
  if _CONFIG.value is None or not _WORKDIR.value:
    raise UserError('--config=configs/NAME.py and --workdir=DIR are both needed')
  shared_flags.check_at_least(1, _TEACHERS)
  workdir = Path(_WORKDIR.value).expanduser().absolute()
  outputs.check_folder('workdir', workdir)
  recipe = plan(load_models(flags.FLAGS['config'], _CONFIG.value), _DIRECTIONS.value,
                _TEACHERS.value, workdir)
  if _DRY_RUN.value:
    for command in commands(recipe, workdir):
      print(shlex.join(command))
    return
  with RunLock(workdir):
    begin(recipe, workdir)
    carry_out(recipe, workdir, lambda command: child_process.run(child_process.leashed(command)))


def load_models(config_flag, student: ConfigDict) -> dict[str, Config]:
  """Returns the settings of `student`, `forward` and `back`, with those of the command line."""
  get_config = runpy.run_path(config_flags.get_config_filename(config_flag).partition(':')[0]
                              )['get_config']
  overrides = flatten({name: value.to_dict() if isinstance(value, ConfigDict) else value
                       for name, value in config_flags.get_override_values(config_flag).items()})

  def load(model: str) -> Config:
    settings = get_config(model)
    settings.update_from_flattened_dict(overrides)
    return Config.from_dict(settings.to_dict())

  if 'model' in inspect.signature(get_config).parameters:
    return {model: load(model) for model in ('student', *DIRECTIONS)}
  tree = student.to_dict()
  data = tree['data']
  swapped = data | {'source_language': data['target_language'],
                    'target_language': data['source_language']}
  same = Config.from_dict(tree)
  return {'student': same, 'forward': same, 'back': Config.from_dict(tree | {'data': swapped})}


def plan(models: Mapping[str, Config], directions: Sequence[str], count: int,
         workdir: Path) -> Recipe:
  """Returns the recipe, checked.

  Args:
    models: from `load_models`.
    directions: some of `DIRECTIONS`.
    count: the number of teachers of each direction.
    workdir: the directory of all runs and texts.

  Raises:
    UserError: a direction does not exist, or the text is not that of files.
  """
  if not directions or set(directions) - set(DIRECTIONS) or len(set(directions)) < len(directions):
    raise UserError(f'--directions must be {", ".join(DIRECTIONS)} or one of them; got '
                    f'{",".join(directions)!r}')
  student = models['student']
  if student.data.source != 'text':
    raise UserError(f'teachers translate text files, so data.source must be text; got '
                    f'{student.data.source}')
  names = models['forward'].data.train
  data = {'dir': str(workdir / 'text'),
          'train': (*names, *(f'{name}_{direction}' for direction in directions
                              for name in names))}
  tree = student.to_dict()
  return Recipe(names, {f'{direction}_{number}': _changed(
      models[direction], seed=models[direction].seed + number - 1)
                        for direction in directions for number in range(1, count + 1)},
                Config.from_dict(tree | {'data': tree['data'] | data}))


def _changed(config: Config, **settings: Any) -> Config:
  return Config.from_dict(config.to_dict() | settings)


def begin(recipe: Recipe, workdir: Path):
  """Writes the settings of all models, or checks that the recipe is the one that was begun.

  Raises:
    UserError: it is another recipe or other text; names what differs.
  """
  models = {**recipe.teachers, 'student': recipe.student}
  data = next(iter(recipe.teachers.values())).data
  about = {'text': {corpus: open_corpus(data, corpus).fingerprint for corpus in recipe.names},
           **{name: _plain(config) for name, config in models.items()}}
  now = flatten(about)
  path = workdir / _RECIPE
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
          f'--source={source}', f'--output={_unfinished(_translation(workdir, teacher, corpus))}']


def _translation(workdir: Path, teacher: str, corpus: str) -> Path:
  return workdir / 'translations' / f'{teacher}.{corpus.replace("/", "_")}'


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
               if not _translation(workdir, name, corpus).exists()]
    if not missing:
      logging.info('%s has translated all text', name)
      continue
    run(name, train_command(name, workdir))
    for corpus in missing:
      path = _translation(workdir, name, corpus)
      run(name, translate_command(recipe, name, corpus, workdir))
      os.replace(_unfinished(path), path)
  make_text(recipe, workdir)
  run('student', train_command('student', workdir))
  logging.info('score it with: python eval.py --workdir=%s', workdir / 'student')


def make_text(recipe: Recipe, workdir: Path):
  """Makes the student's text: links to the files that there are, and the new pairs."""
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
  known = {pair for pairs in originals.values() for pair in pairs}
  for direction in DIRECTIONS:
    teachers = [name for name in recipe.teachers if name.startswith(direction)]
    for corpus in recipe.names if teachers else ():
      pairs = originals[corpus]
      made = [pair for name in teachers for pair in _with_translations(
          pairs, direction, _translation(workdir, name, corpus))]
      new = list(new_pairs(known, made))
      known.update(new)
      logging.info('%s_%s: %s of %s pairs are new', corpus, direction, f'{len(new):,}',
                   f'{len(made):,}')
      for side, language in enumerate(languages):
        files.write(workdir / 'text' / f'{corpus}_{direction}.{language}',
                    ''.join(f'{pair[side]}\n' for pair in new).encode())


def _with_translations(pairs: Sequence[tuple[str, str]], direction: str,
                       path: Path) -> list[tuple[str, str]]:
  """Returns the pairs with one side replaced by the lines of a file."""
  lines = path.read_text('utf-8').split('\n')[:-1]
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


if __name__ == '__main__':
  command_line.run(main)
