"""`train.py` reports user errors in one line without writing files, and logs its findings."""

import json
import os
import re
import shlex
import shutil

import pytest

from tests.command_fixtures import ENGLISH, GERMAN
from tests.experiment.tensorboard_events import samples_of, shown
from transformer.config import Config
from transformer.experiment import train_loop
from transformer.runs import run_directory
from transformer.runs.loading import load_run


@pytest.mark.parametrize(
  ('flags', 'facts'),
  [
    (
      ['--config.model.num_head=3'],
      ['no key config.model.num_head', 'config.model.num_heads?'],
    ),
    (
      ['--noconfig.model.tie_outputs'],
      ['no key config.model.tie_outputs', 'tie_output?'],
    ),
    (["--config.model={'num_head': 3}"], ['num_head']),
    (['--config.train.steps=many'], ['--config.train.steps=many', 'an integer']),
    (['--config.model.dropout=abc'], ['--config.model.dropout=abc', 'float']),
    (['--config.mesh.data=3'], ['the mesh must use all 1 devices', 'data=3']),
    (
      [
        '--config.model.attention=cudnn',
        '--config.model.dtype=bfloat16',
        '--config.model.model_dim=16',
      ],
      [
        'model.attention=cudnn needs an NVIDIA GPU',
        'cpu here',
        'model.attention=reference',
      ],
    ),
    (["--config.data={'dir': 3}"], ['config.data.dir must be of type str; got 3']),
    (["--config.data.train=('train', 'train')"], ['each once']),
    (
      ['--config.data.dir=/nowhere'],
      [
        '/nowhere/train.en',
        'there is no folder /nowhere; if the dataset has moved, pass --config.data.dir=DIR',
      ],
    ),
    (['--config.data.valid=nothing'], ['nothing.en', 'contains']),
    (['--config.data.train=unequal'], ['unequal.en has 4 lines', 'unequal.de has 3']),
    (['--config.data.train=latin'], ['latin.de must be UTF-8; line 2 is not']),
    (
      ['--config.data.train=long'],
      ['all training pairs were dropped', 'data.max_length'],
    ),
    (
      ['--config.data.passes_per_epoch=(0.01,)'],
      ['data.passes_per_epoch', '0.01 takes none of 6 rows (12 pairs)'],
    ),
    (['--config.data.vocabulary_size=30000'], ['vocabulary_size=30000', 'at most']),
    (
      ['--config.data.source=tfds', '--config.data.tfds_name=wmt14_tranlate'],
      ['wmt14_tranlate is not prepared in ', 'docs/data.md'],
    ),
    (['--config.train.init_from=/nowhere'], ['/nowhere holds no run']),
    (['--nonsense=3'], ["Unknown command line flag 'nonsense'"]),
    (
      ['--train.steps=5'],
      ["Unknown command line flag 'train.steps'", 'pass --config.train.steps'],
    ),
    (['stray'], ["unexpected argument 'stray'"]),
    (['--config'], ['Missing value for flag --config']),
  ],
)
def test_user_error_in_training_leaves_no_files(train, folder, tmp_path, flags, facts):
  workdir = tmp_path / 'run'
  message = train.rejects(f'--config={folder}/tiny.py', f'--workdir={workdir}', *flags)
  for fact in facts:
    assert fact in message, message
  assert not workdir.exists()


@pytest.mark.parametrize(
  ('name', 'facts'),
  [
    (
      '{folder}/nope.py',
      [
        'there is no config file ',
        '/nope.py',
        'the current folder is /',
        'pass the path of a file to --config',
      ],
    ),
    ('{folder}', ['holds no run: there is no config.json in it']),
    ('{folder}/train.de', ['/train.de cannot be loaded: SyntaxError']),
    ('{folder}/tiny.py:big', ['tiny.py:big', 'TypeError', 'get_config()']),
    *(
      (
        f'{{own}}/{name}.py',
        [
          f'/{name}.py must define get_config(), which returns an '
          f'ml_collections.ConfigDict; got {got}'
        ],
      )
      for name, got in (('other', '{}'), ('nothing', 'None'), ('empty', 'None'))
    ),
    ('{own}/exits.py', ['/exits.py cannot be loaded: SystemExit: 1']),
    (
      '{own}/mistyped.py',
      ['there is no key config.model.ff_dims; did you mean config.model.ff_d'],
    ),
    *(
      (
        f'configs/wmt14.py:{argument}',
        [
          'configs/wmt14.py takes a size, base or big, then a direction, en-de, de-en, en-fr, '
          f'fr-en, such as configs/wmt14.py:big,en-fr; got {argument!r}'
        ],
      )
      for argument in ('bgi', 'en-fr,big')
    ),
  ],
)
def test_a_config_that_cannot_be_loaded_is_reported(
  train, folder, tmp_path, name, facts
):
  (tmp_path / 'other.py').write_text(
    'def get_config():\n  return {}\n', encoding='utf-8'
  )
  (tmp_path / 'nothing.py').write_text('def get_config():\n  pass\n', encoding='utf-8')
  (tmp_path / 'empty.py').touch()
  (tmp_path / 'exits.py').write_text(
    'def get_config():\n  raise SystemExit(1)\n', 'utf-8'
  )
  text = (folder / 'tiny.py').read_text(encoding='utf-8').replace('ff_dim', 'ff_dims')
  (tmp_path / 'mistyped.py').write_text(text, encoding='utf-8')
  command = (
    f'--config={name.format(folder=folder, own=tmp_path)}',
    f'--workdir={tmp_path}/run',
  )
  for more in ([], ['--config.train.steps=3']):
    message = train.rejects(*command, *more)
    for fact in facts:
      assert fact in message, message
  assert not (tmp_path / 'run').exists()


def test_both_config_and_workdir_are_needed(train, folder, tmp_path):
  for flags in ([], [f'--workdir={tmp_path}/run'], [f'--config={folder}/tiny.py']):
    assert 'pass --config=configs/NAME.py and --workdir=DIR' in train.rejects(*flags)
  assert f'got --workdir={tmp_path}/run' in train.rejects(f'--workdir={tmp_path}/run')
  message = train.rejects(f'--workdir={tmp_path}/run', '--config.seed=3')
  assert message.endswith('pass --config=configs/NAME.py, too')
  assert '--config.seed=3 in argv before a value for --config' in train.rejects(
    '--config.seed=3', f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run'
  )
  assert not (tmp_path / 'run').exists()


def test_an_unusable_workdir_is_left_unchanged(train, folder, tmp_path):
  config = f'--config={folder}/tiny.py'
  (tmp_path / 'file').write_text('mine')
  for workdir in ('file', 'file/run'):
    message = train.rejects(config, f'--workdir={tmp_path / workdir}')
    assert (
      message.startswith('--workdir needs a directory')
      and f'{tmp_path}/file is' in message
    )
  for workdir in ('new\\run', 'logs:/run'):
    assert 'path of checkpoints must not contain ' in train.rejects(
      config, f'--workdir={tmp_path / workdir}'
    )
  (tmp_path / 'full').mkdir()
  (tmp_path / 'full' / 'thesis.tex').write_text('mine')
  message = train.rejects(config, f'--workdir={tmp_path}/full')
  assert f'{tmp_path}/full is not empty and holds no run' in message
  assert os.listdir(tmp_path / 'full') == ['thesis.tex']
  assert (tmp_path / 'file').read_text() == 'mine'
  assert sorted(os.listdir(tmp_path)) == ['file', 'full']


def test_a_check_reports_and_writes_nothing(train, folder, trained, tmp_path):
  before = {path: path.stat().st_mtime_ns for path in trained.rglob('*')}
  for workdir, fact in (
    (tmp_path / 'run', 'is available for a new run'),
    (trained, 'contains this run, which is finished'),
  ):
    status, _, err = train(
      f'--config={folder}/tiny.py', f'--workdir={workdir}', '--check'
    )
    assert status == 0, err
    warning, *_, line = err.splitlines()
    assert (
      'still warming up at the last step: optimizer.warmup_steps=4000, train.steps=2'
      in warning
    )
    assert 'flags, config and files are valid; ' in line
    assert f' --workdir={workdir} {fact}; ' in line
  assert not (tmp_path / 'run').exists()
  assert {path: path.stat().st_mtime_ns for path in trained.rglob('*')} == before


@pytest.mark.long(but=['vocabulary', 'augmentation'])
@pytest.mark.parametrize(
  ('flags', 'fact'),
  [
    pytest.param(flags, fact, id=name)
    for name, flags, fact in (
      ('dir', 'data.dir=/nowhere', 'pass --config.data.dir=DIR'),
      ('valid', 'data.valid=nothing', 'nothing.en'),
      ('bytes', 'data.train=latin', 'latin.de must be UTF-8; line 2'),
      ('language', 'data.target_language=fr', 'train.fr'),
      (
        'tracker',
        'train.trackers=no_module:x',
        'the tracker no_module:x cannot be imported',
      ),
      (
        'metric',
        'train.valid_metric=no_module:x',
        'the metric no_module:x cannot be imported',
      ),
      ('taken', 'train.valid_metric={bad}:metric', 'name of another validation metric'),
      (
        'best',
        'train.best_by=f9 train.valid_metric={bad}:length',
        'must name one of bleu, ',
      ),
      (
        'source',
        'data.source=no_module:x',
        'the source no_module:x cannot be imported',
      ),
      (
        'objective',
        'train.objective=no_module:x',
        'the objective no_module:x cannot be',
      ),
      ('loss', 'train.objective={bad}:loss', ':loss failed'),
      ('schedule', 'optimizer.schedule={bad}:schedule', ':schedule cannot be built'),
      ('algorithm', 'optimizer.algorithm={bad}:algorithm', ':algorithm'),
      ('augmentation', "data.augmentations=('{bad}:augment',)", 'KeyError'),
      ('no vocabulary', 'data.vocabulary=/nowhere', '/nowhere'),
      (
        'vocabulary',
        'data.vocabulary={run}/vocabulary.model data.vocabulary_size=290',
        'vocabulary comes from data.vocabulary; set --config.data.vocabulary_size=300',
      ),
      (
        'kind',
        'data.vocabulary={run}/vocabulary.model data.vocabulary_kind=unigram',
        'set --config.data.vocabulary_kind=bpe',
      ),
      ('large', 'data.vocabulary_size=9000', 'is too large for the training text'),
      ('no pair', 'data.max_length=4', 'all training pairs were dropped'),
      ('weights', 'data.passes_per_epoch=0.001', 'must take at least one row'),
      ('no run', 'train.init_from=/nowhere', '/nowhere holds no run'),
      ('no weights', 'train.init_from={folder}/begun', 'holds no checkpoint'),
      (
        'model',
        'train.init_from={run} model.ff_dim=13',
        'model.ff_dim is 11 there, and 13 here',
      ),
      (
        'separate',
        'train.init_from={run} data.shared_vocabulary=False model.share_embeddings=False',
        'share_embeddings is True there, and False here',
      ),
      (
        'smaller',
        'train.init_from={run} data.vocabulary_size=290',
        'vocabulary_size=300',
      ),
    )
  ],
)
def test_a_check_reports_the_same_errors_as_a_start(
  train, folder, trained, tmp_path, flags, fact
):
  begun = folder / 'begun'
  if not begun.exists():
    shutil.copytree(
      trained, begun, ignore=shutil.ignore_patterns('checkpoints', 'metrics.jsonl')
    )
  flags = [
    f'--config.{flag}'
    for flag in flags.format(
      bad='tests.cli.failing_plugins', folder=folder, run=trained
    ).split(' ')
  ]
  start = f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run', *flags
  assert fact in train.rejects_alike(*start)
  status, _, err = train(*start, '--check', '--read_data=false')
  assert status == 0 and 'flags and config are valid' in err, err


@pytest.mark.long
def test_a_check_rejects_changes_that_prevent_resuming(
  train, folder, trained, tmp_path
):
  run, text = shutil.copytree(trained, tmp_path / 'run'), tmp_path / 'text'
  text.mkdir()
  for file in folder.glob('*.??'):
    shutil.copy(file, text)
  start = f'--config={folder}/tiny.py', f'--workdir={run}', f'--config.data.dir={text}'
  status, _, err = train(*start, '--check')
  assert status == 0 and 'contains this run, which is finished' in err, err
  with (
    (text / 'train.en').open('a') as english,
    (text / 'train.de').open('a') as german,
  ):
    english.write('dog\n')
    german.write('hund\n')
  more = '--config.train.steps=3'
  assert 'was trained on different data: train/train changed' in train.rejects_alike(
    *start, more
  )
  for array in (run / 'checkpoints').glob('*/digests.json'):
    array.write_text('{}')
  before = sorted(run.rglob('*'))
  assert 'all checkpoints in' in train.rejects(*start, '--check')
  assert sorted(run.rglob('*')) == before
  assert 'all checkpoints in' in train.rejects(*start)


def test_log_lines_are_short_at_a_terminal(train, folder, tmp_path):
  _, _, err = train.at_a_terminal(
    f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run', '--check'
  )
  warning, *_, line = err.splitlines()
  assert re.match(r'\d\d:\d\d:\d\d WARNING: the learning rate is', warning)
  assert re.match(r'\d\d:\d\d:\d\d INFO: flags, config and files', line)


def test_validation_while_training_is_greedy_however_the_run_decodes(
  trained, tmp_path, monkeypatch
):
  settings = run_directory.read_config_dict(trained)
  settings['decode']['beam_size'] = 3
  settings['train']['tokens_per_batch'] = 4 * 64  # A row for each device.

  class Searching:
    def __init__(self, *_):
      pass

    def compile_longest(self, params, sources, decoding):
      raise KeyboardInterrupt(decoding.beam_size)  # The run ends before its first step.

  monkeypatch.setattr(train_loop, 'Translator', Searching)
  with pytest.raises(KeyboardInterrupt, match='1'):
    train_loop.train_run(Config.from_dict(settings), tmp_path / 'run')


@pytest.mark.long
def test_several_validation_sets_are_evaluated_and_one_of_them_decides(
  train, evaluate, folder, tmp_path
):
  run = tmp_path / 'the run (1)'
  status, _, err = train(
    f'--config={folder}/tiny.py',
    f'--workdir={run}',
    "--config.data.valid=('test', 'valid')",
    '--config.train.steps=1',
    '--config.train.best_by=valid/chrf',
  )
  assert (
    status == 0
    and 'the best step on the validation split is 1, with valid chrF2++ ' in err
  )
  # As a shell takes it.
  assert shlex.split(err.splitlines()[-1])[-1] == f'--workdir={run}'
  (row,) = (
    row
    for row in map(json.loads, (run / 'metrics.jsonl').read_text().splitlines())
    if 'valid/bleu' in row
  )
  for key in ('valid', 'valid/valid'):
    assert {f'{key}/{name}' for name in ('loss', 'perplexity', 'bleu', 'chrf')} < set(
      row
    )
  assert row['valid/loss'] != row['valid/valid/loss']
  assert load_run(run).config.data.valid == ('test', 'valid')
  for split, text in (('valid', 'test'), ('valid/valid', 'valid')):
    status, out, err = evaluate(f'--workdir={run}', f'--split={split}', '--beam_size=1')
    assert status == 0 and f'{run}/eval/{text}.step1.' in out, err


def test_tensorboard_shows_sentences_of_the_validation_split(trained):
  ((step, markdown),) = shown(trained)
  sources, references, translations = zip(*samples_of(markdown), strict=True)
  assert (step, list(sources), list(references)) == (2, ENGLISH[:2], GERMAN[:2])
  assert all(isinstance(translation, str) for translation in translations)
