"""The recipe of teachers and a student: what is run, in what order, and what a stop leaves."""

import dataclasses
import pathlib
import runpy
import shlex

import pytest

from tests.running_commands import ENGLISH, GERMAN
from transformer.commands.config_file import changed
from transformer.config import Config
from transformer.data.config import DataConfig
from transformer.errors import Preempted, UserError
from transformer.tools.distil import recipe as recipes
from transformer.tools.distil import steps

# ml_collections loads a config's file in a way that Python would have changed.
pytestmark = pytest.mark.filterwarnings('ignore:the load_module:DeprecationWarning')


@pytest.fixture(scope='module')
def launch(start_command):
  yield from start_command('transformer.tools.distil.__main__')


def models_of(folder):
  data = DataConfig(source='text', dir=str(folder), valid='valid', target_language='de')
  swapped = dataclasses.replace(data, source_language='de', target_language='en')
  return {'student': Config(data), 'forward': Config(data), 'back': Config(swapped)}


@pytest.fixture
def recipe(folder, tmp_path):
  """Returns a recipe with two teachers of each direction."""
  made = recipes.plan(models_of(folder), ('forward', 'back'), 2, tmp_path)
  recipes.begin(made, tmp_path)
  return made


class Machine:
  """Runs commands: notes them, and writes what eval.py would write."""

  def __init__(self, stop_at=None):
    self.done, self._stop_at = [], stop_at

  def __call__(self, command):
    given = dict(flag[2:].split('=', 1) for flag in command[2:])
    name = pathlib.Path(command[1]).stem, pathlib.Path(given['workdir']).name
    if len(self.done) == self._stop_at:
      raise Preempted('stopped')
    self.done.append(name)
    if name[0] == 'eval':
      teacher = name[1]
      lines = pathlib.Path(given['source']).read_text('utf-8').splitlines()
      # The second teacher writes what the first one writes, but for the first line.
      pathlib.Path(given['output']).write_text(
        ''.join(
          f'{line.upper()}{teacher if not number else ""}\n'
          for number, line in enumerate(lines)
        ),
        'utf-8',
      )
    return 0


def texts(workdir):
  return {
    path.name: path.read_text('utf-8')
    for path in sorted((workdir / 'text').iterdir())
    if path.is_file()
  }


def test_teachers_have_seeds_and_languages_of_their_own_and_the_student_all_text(
  recipe, tmp_path
):
  assert {
    name: (config.seed, config.data.source_language, config.data.train)
    for name, config in recipe.teachers.items()
  } == {
    'forward_1': (0, 'en', ('train',)),
    'forward_2': (1, 'en', ('train',)),
    'back_1': (0, 'de', ('train',)),
    'back_2': (1, 'de', ('train',)),
  }
  assert recipe.student.data.train == ('train', 'train_forward', 'train_back')
  assert recipe.student.data.dir == str(tmp_path / 'text')


def test_a_students_own_order_and_weights_stay_with_their_corpora(folder, tmp_path):
  models = models_of(folder)

  def student(train, weights, directions):
    own = changed(
      models['student'], {'data.train': train, 'data.train_weights': weights}
    )
    data = recipes.plan(models | {'student': own}, directions, 1, tmp_path).student.data
    return dict(zip(data.train, data.train_weights, strict=True))

  train = ('train_back', 'train', 'train_forward')
  weights = {'train_back': 2.0, 'train': 5.0, 'train_forward': 1.0}
  assert student(train, (2.0, 5.0, 1.0), ('forward', 'back')) == weights
  assert student(train, (2.0, 5.0, 1.0), ('back',)) == {'train_back': 2.0, 'train': 5.0}
  with pytest.raises(
    UserError,
    match=r'student must be that of the teachers, train, or train, '
    r'train_forward, train_back; got train, in_domain$',
  ):
    student(('train', 'in_domain'), (1.0, 1.0), ('forward', 'back'))


def test_everything_is_done_once_and_in_order(recipe, folder, tmp_path):
  machine = Machine()
  steps.carry_out(recipe, tmp_path, machine)
  teachers = ('forward_1', 'forward_2', 'back_1', 'back_2')
  assert machine.done == [
    (command, name) for name in teachers for command in ('train', 'eval')
  ] + [('train', 'student')]
  text = texts(tmp_path)
  assert text['train.en'] == (folder / 'train.en').read_text('utf-8')
  assert text['valid.de'] == (folder / 'valid.de').read_text('utf-8')
  sources, targets = (
    text[f'train_forward.{language}'].splitlines() for language in ('en', 'de')
  )
  # The first line of the second teacher differs from that of the first; all else is repeated.
  assert sources == [ENGLISH[0], *ENGLISH[1:], ENGLISH[0], ENGLISH[0]]
  assert targets == [
    f'{ENGLISH[0].upper()}forward_1',
    *map(str.upper, ENGLISH[1:]),
    ENGLISH[0].upper(),
    f'{ENGLISH[0].upper()}forward_2',
  ]
  sources, targets = (
    text[f'train_back.{language}'].splitlines() for language in ('en', 'de')
  )
  assert set(targets) == set(GERMAN) and all(line[:9].isupper() for line in sources)


def test_the_teachers_of_a_direction_translate_together(recipe, tmp_path):
  machine = Machine()
  together = recipe._replace(
    translating=recipes.TRANSLATING | {'ensemble': True, 'average': 3}
  )
  steps.carry_out(together, tmp_path, machine)
  assert machine.done == [
    ('train', 'forward_1'),
    ('train', 'forward_2'),
    ('eval', 'forward_1'),
    ('train', 'back_1'),
    ('train', 'back_2'),
    ('eval', 'back_1'),
    ('train', 'student'),
  ]
  # There is one translation of each line. The first line of all is unlike its later repetitions.
  targets = texts(tmp_path)['train_forward.de'].splitlines()
  assert targets == [
    f'{ENGLISH[0].upper()}forward_1',
    *map(str.upper, ENGLISH[1:]),
    ENGLISH[0].upper(),
  ]
  step = next(
    step for step in steps.steps(together, tmp_path) if step.name == 'forward'
  )
  assert {f'--ensemble={tmp_path}/forward_2', '--average=3'} < set(step.command)


@pytest.mark.parametrize('stop_at', [0, 1, 2, 4, 7, 8])
def test_after_a_stop_anywhere_it_goes_on_and_ends_with_the_same_text(
  recipe, tmp_path, stop_at
):
  first, second = Machine(stop_at), Machine()
  with pytest.raises(Preempted):
    steps.carry_out(recipe, tmp_path, first)
  recipes.begin(recipe, tmp_path)
  steps.carry_out(recipe, tmp_path, second)
  # No text is translated twice. A teacher is asked to train again, which ends at once, if it has.
  evals = [done for done in first.done + second.done if done[0] == 'eval']
  assert len(evals) == len(set(evals)) == 4
  assert second.done[-1] == ('train', 'student')
  interrupted = texts(tmp_path)
  for path in (tmp_path / 'translations').iterdir():
    path.unlink()
  steps.carry_out(recipe, tmp_path, Machine())
  assert texts(tmp_path) == interrupted


@pytest.fixture
def own(recipe, tmp_path):
  """The recipe with a training text of two pairs."""
  (tmp_path / 'own').mkdir()
  (tmp_path / 'own' / 'train.en').write_text('same\nother\n', 'utf-8')
  (tmp_path / 'own' / 'train.de').write_text('other\nsame\n', 'utf-8')
  return recipe._replace(
    teachers={
      name: changed(config, {'data.dir': str(tmp_path / 'own')})
      for name, config in recipe.teachers.items()
    }
  )


def test_no_pair_is_in_two_of_the_students_files(own, tmp_path):
  def echo(command):
    flags_of = dict(flag[2:].split('=', 1) for flag in command[2:])
    if 'output' in flags_of:  # A blank line makes no pair.
      pathlib.Path(flags_of['output']).write_text('same\nsame\n \n', 'utf-8')
    return 0

  for language in ('en', 'de'):
    with (tmp_path / 'own' / f'train.{language}').open('a') as file:
      file.write('third\n')
  steps.carry_out(own, tmp_path, echo)
  text = texts(tmp_path)
  pairs = [
    pair
    for name in ('train_forward', 'train_back')
    for pair in zip(
      *(text[f'{name}.{language}'].splitlines() for language in ('en', 'de')),
      strict=True,
    )
  ]
  assert pairs == [('same', 'same')]
  # No translation back is new, and an empty corpus cannot be trained on.
  settings = runpy.run_path(str(tmp_path / 'student.py'))['get_config']()
  assert settings.data.train == ('train', 'train_forward')


def test_another_recipe_or_other_text_in_the_directory_is_refused(
  recipe, own, tmp_path
):
  for other, fact in (
    (
      recipe._replace(student=changed(recipe.student, {'seed': 9})),
      r'student\.seed was 0, is 9',
    ),
    (
      recipe._replace(translating=recipes.TRANSLATING | {'average': 2}),
      r'translating\.average was 1, is 2',
    ),
    (
      recipe._replace(teachers={'forward_1': recipe.teachers['forward_1']}),
      r'back_1.* is not there',
    ),
    (own, r'back_1\.data\.dir was .*, is .*own'),
  ):
    with pytest.raises(
      UserError, match=f'with another recipe: {fact}; choose another --workdir'
    ):
      recipes.begin(other, tmp_path)
  (tmp_path / 'run').mkdir()
  recipes.begin(own, tmp_path / 'run')
  (tmp_path / 'own' / 'train.en').write_text('a\nc\n', 'utf-8')
  with pytest.raises(
    UserError, match=r'another recipe: text\.train was .*, is .*; choose'
  ):
    recipes.begin(own, tmp_path / 'run')


def test_a_command_that_fails_ends_the_recipe_and_leaves_no_translation(
  recipe, tmp_path
):
  with pytest.raises(
    UserError, match=r'forward_1: train\.py ended with status 3, .*to go on'
  ):
    steps.carry_out(recipe, tmp_path, lambda command: 3)
  assert not list((tmp_path / 'translations').iterdir())


def test_only_a_line_feed_ends_a_translation_and_none_may_be_missing(recipe, tmp_path):
  steps.carry_out(recipe, tmp_path, Machine())
  path = tmp_path / 'translations' / 'back_1.train'
  lines = [f'a\r{number}\u2028b' for number in range(12)]
  path.write_bytes(''.join(f'{line}\n' for line in lines).encode())
  steps.carry_out(recipe, tmp_path, Machine())
  text = (tmp_path / 'text' / 'train_back.en').read_bytes().decode()
  assert set(lines) <= set(text.split('\n'))
  path.write_text('one\n')
  with pytest.raises(
    UserError,
    match=r'back_1\.train should have a line for each of 12 pairs; it '
    r'has 1; remove it',
  ):
    steps.carry_out(recipe, tmp_path, Machine())


def test_a_config_with_three_models_gives_each_its_own_settings(
  launch, tmp_path, monkeypatch
):
  monkeypatch.chdir(pathlib.Path(__file__).parents[3])
  status, out, err = launch(
    '--config=configs/multi30k.py',
    f'--workdir={tmp_path}/run',
    '--teachers=2',
    '--dry_run',
    '--config.train.tokens_per_batch=640',
  )
  assert status == 0, err
  lines = [shlex.split(line) for line in out.splitlines()]
  assert [
    (pathlib.Path(line[1]).name, line[2].rpartition('/')[2]) for line in lines
  ] == [
    *(
      pair
      for teacher in ('forward_1', 'forward_2', 'back_1', 'back_2')
      for pair in (('train.py', f'{teacher}.py'), ('eval.py', teacher))
    ),
    ('train.py', 'student.py'),
  ]
  assert not (tmp_path / 'run').exists()


def test_the_way_back_has_languages_and_vocabularies_the_other_way_round(
  folder, tmp_path
):
  models = dict.fromkeys(('student', 'forward', 'back'), models_of(folder)['forward'])
  assert recipes.plan(models, ('forward',), 1, tmp_path)
  with pytest.raises(
    UserError,
    match=r'back must translate from data\.source_language=de to data\.'
    'target_language=en; got en and de',
  ):
    recipes.plan(models, ('forward', 'back'), 1, tmp_path)
  settings = runpy.run_path(str(folder / 'tiny.py'))['get_config']()
  settings.update_from_flattened_dict(
    {
      'data.shared_vocabulary': False,
      'model.share_embeddings': False,
      'data.vocabulary': 'to',
      'data.source_vocabulary': 'from',
      'data.source_vocabulary_size': 400,
    }
  )
  models = recipes.load_models(
    str(folder / 'tiny.py'), {}, settings, recipes.DIRECTIONS
  )
  for name, wanted in (
    ('forward', ('from', 'to', 400, 300)),
    ('back', ('to', 'from', 300, 400)),
  ):
    data = models[name].data
    assert (
      data.source_vocabulary,
      data.vocabulary,
      data.source_vocabulary_size,
      data.vocabulary_size,
    ) == wanted


@pytest.mark.parametrize(
  ('given', 'fact'),
  [
    (['--config=configs/multi30k.py:forward'], 'leave out :forward'),
    (None, '--config=configs/NAME.py and --workdir=DIR are both needed'),
    (['--ensemble'], '--ensemble needs --teachers=2 or more; got 1'),
    (['--average=2'], '--average=2 needs --checkpoint=latest'),
    (
      ['--config.data.train=/a/train'],
      'names in data.train must lie below data.dir; got /a/train',
    ),
    (
      ['--checkpoint=latest', '--average=6'],
      '--average=6 needs as many checkpoints of each teacher; train.keep is 5; raise it',
    ),
    (
      ['--directions=forward,up'],
      "--directions must be forward, back or one of them; got 'forward,up'",
    ),
    (['--config.data.source=tfds'], 'data.source must be text; got tfds'),
  ],
)
def test_a_mistake_is_one_line(launch, folder, given, fact):
  usual = [f'--config={folder}/tiny.py', f'--workdir={folder}/x'] if given else []
  assert fact in launch.refuses(
    *usual, *(flag.format(folder=folder) for flag in given or ())
  )
  assert not (folder / 'x').exists()


@pytest.mark.long
def test_a_student_is_trained_from_end_to_end(launch, folder, tmp_path):
  given = [
    f'--config={folder}/tiny.py',
    f'--workdir={tmp_path}/run',
    '--directions=back',
    '--teachers=2',
    '--ensemble',
    '--checkpoint=latest',
    '--average=2',
  ]
  status, _, err = launch(*given)
  assert status == 0, err
  assert f'score it with: python eval.py --workdir={tmp_path}/run/student' in err
  assert (tmp_path / 'run' / 'student' / 'checkpoints' / '2').is_dir()
  before = texts(tmp_path / 'run')
  status, _, err = launch(*given)
  assert status == 0 and 'back: /' not in err, err
  assert texts(tmp_path / 'run') == before
