"""A user's mistake ends in one line on standard error and status 1, with nothing half written."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from transformer import command_line
from transformer.errors import UserError

ROOT = pathlib.Path(__file__).parent.parent
# Imports a command once and forks for every command line, since importing JAX takes seconds.
SERVER = """
import importlib, json, os, sys, warnings
warnings.simplefilter('ignore')  # JAX warns of forks; it has not started here.
from transformer import command_line
module = importlib.import_module(sys.argv[1])
for line in sys.stdin:
  arguments, out, err = json.loads(line)
  child = os.fork()
  if not child:
    for number, path in ((0, os.devnull), (1, out), (2, err)):
      os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = [module.__file__, *arguments]
    try:
      command_line.run(module.main)
    except SystemExit as stop:
      if isinstance(stop.code, str):  # As Python does, without the half second that it tidies up.
        print(stop.code, file=sys.stderr, flush=True)
        os._exit(1)
      raise
  print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
ENGLISH = ['a man in a red shirt climbs a rock .', 'two women sit on the bench .',
           'the dog runs through wet grass .', 'a child eats an apple .']
GERMAN = ['ein mann in rotem hemd klettert .', 'zwei frauen sitzen auf der bank .',
          'der hund läuft durch nasses gras .', 'ein kind isst einen apfel .']
CONFIG = '''"""A tiny run."""

from configs import base


def get_config():
  config = base.get_config()
  config.data.source = 'text'
  config.data.dir = {folder!r}
  config.data.valid = 'valid'
  config.data.target_language = 'de'
  config.data.vocabulary_size = 300
  config.data.max_length = 64
  config.model.num_layers = 1
  config.model.model_dim = 8
  config.model.ff_dim = 11
  config.model.num_heads = 2
  config.train.tokens_per_batch = 320
  config.train.steps = 2
  config.train.checkpoint_every = 1
  config.decode.max_extra_length = 3
  config.decode.batch_size = 4
  return config
'''


class Command:
  """`train.py` or `eval.py`, run with one command line after the other."""

  def __init__(self, name, folder):
    environment = {**os.environ, 'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu'}
    self._process = subprocess.Popen(
        [sys.executable, '-c', SERVER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, cwd=ROOT, env=environment)
    self._out, self._err = folder / 'out', folder / 'err'

  def __call__(self, *arguments):
    """Returns the exit status, standard output and standard error."""
    line = json.dumps([[str(each) for each in arguments], str(self._out), str(self._err)])
    self._process.stdin.write(line + '\n')
    self._process.stdin.flush()
    status = int(self._process.stdout.readline())
    return status, self._out.read_text('utf-8'), self._err.read_text('utf-8')

  def refuses(self, *arguments):
    """Returns the one line that a mistake ends in."""
    status, out, err = self(*arguments)
    assert status == 1 and out == '', (status, out, err)
    return one_error(err)

  def close(self):
    self._process.stdin.close()
    self._process.stdout.close()
    self._process.wait()


def one_error(err):
  lines = err.splitlines()
  errors = [line for line in lines if not re.match(r'[IW]\d{4} ', line)]  # absl's log lines
  assert len(errors) == 1 and errors[0].startswith('error: ') and lines[-1] == errors[0], err
  return errors[0].removeprefix('error: ')


def write_text(folder, prefix, english, german):
  for language, lines in (('en', english), ('de', german)):
    (folder / f'{prefix}.{language}').write_text(''.join(f'{line}\n' for line in lines),
                                                 encoding='utf-8')


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('commands')
  write_text(folder, 'train', ENGLISH * 3, GERMAN * 3)
  write_text(folder, 'valid', ENGLISH[:2], GERMAN[:2])
  write_text(folder, 'test', ENGLISH[2:], GERMAN[2:])
  write_text(folder, 'unequal', ENGLISH, GERMAN[:3])
  write_text(folder, 'long', [' '.join(ENGLISH * 3)] * 2, GERMAN[:2])
  (folder / 'latin.en').write_bytes(b'a\nb\nc\n')
  (folder / 'empty').write_bytes(b'')
  (folder / 'latin.de').write_bytes('a\nüber\nc\n'.encode('latin-1'))
  (folder / 'tiny.py').write_text(CONFIG.format(folder=str(folder)), encoding='utf-8')
  return folder


def start(name, folder):
  running = Command(name, folder)
  yield running
  running.close()


@pytest.fixture(scope='module')
def train(tmp_path_factory):
  yield from start('train', tmp_path_factory.mktemp('train'))


@pytest.fixture(scope='module')
def evaluate(tmp_path_factory):
  yield from start('eval', tmp_path_factory.mktemp('eval'))


@pytest.fixture(scope='module')
def trained(train, folder):
  """A run of two steps, of which no test may change anything."""
  workdir = folder / 'run'
  status, out, err = train(f'--config={folder}/tiny.py', f'--workdir={workdir}')
  assert status == 0, err
  assert out == ''
  # Nothing but our own log, and no library's.
  assert all(re.match(r'I\d{4} .* (train|corpora|reporting)\.py:\d+\] ', line)
             for line in err.splitlines()), err
  return workdir


@pytest.mark.parametrize(('flags', 'facts'), [
    (['--config.model.num_head=3'], ['no key config.model.num_head', 'config.model.num_heads?']),
    (['--config.modle.num_heads=3'], ['no key config.modle', 'did you mean config.model?']),
    (['--config.seed.x=3'], ['no key config.seed.x', 'config.seed is a value']),
    (['--config.data.train[0]=x'], ['no key config.data.train[0]', 'config.data.train?']),
    (['--noconfig.model.tie_outputs'], ['no key config.model.tie_outputs', 'tie_output?']),
    (["--config.model={'num_head': 3}"], ['num_head']),
    (['--config.model=3'], ['--config.model=3']),
    (['--config.train.steps=many'], ['--config.train.steps=many', 'int']),
    (['--config.train.steps=1.5'], ['--config.train.steps=1.5', 'int']),
    (['--config.model.dropout=abc'], ['--config.model.dropout=abc', 'float']),
    (['--config.model.key_dim=wide'], ['--config.model.key_dim=wide', 'int']),
    (['--config.model.tie_output=maybe'], ['--config.model.tie_output=maybe', 'boolean']),
    (['--config.data.train=(1,)'], ['an item of config.data.train must be of type str; got 1']),
    (['--config.model.num_heads=3'], ['num_heads must divide model_dim', 'num_heads=3',
                                      'model_dim=8']),
    (['--config.train.tokens_per_batch=100'], ['tokens_per_batch=100', 'max_length=64']),
    (['--config.mesh.data=3'], ['the mesh must use all 1 devices', 'data=3']),
    (['--config.mesh.data=1', '--config.mesh.fsdp=3'], ['the mesh must use all 1', 'fsdp=3']),
    (['--config.model.attention=cudnn', '--config.model.dtype=bfloat16'],
     ['model.attention=cudnn needs an NVIDIA GPU', 'cpu here', 'model.attention=reference']),
    (["--config.data={'dir': 3}"], ['config.data.dir must be of type str; got 3']),
    (['--config.data.train='], ['must not hold an empty name']),
    (['--config.data.dir=/nowhere'], ['/nowhere/train.en', 'there is no folder /nowhere']),
    (['--config.data.train=nothing'], ['nothing.en', 'holds']),
    (['--config.data.valid=nothing'], ['nothing.en', 'holds']),
    (['--config.data.train=unequal'], ['unequal.en has 4 lines', 'unequal.de has 3']),
    (['--config.data.train=latin'], ['latin.de must be UTF-8; line 2 is not']),
    (['--config.data.train=long'], ['no pair left to train on', 'data.max_length']),
    (['--config.data.train_weights=(0.01,)'], ['data.train_weights', '0.01 of 12 pairs']),
    (['--config.data.vocabulary_size=30000'], ['vocabulary_size=30000', 'at most']),
    (['--config.data.source=tfds', '--config.data.name=phrasebok'], ["'phrasebok'", 'phrasebook']),
    (['--config.data.source=tfds', '--config.data.name=wmt14_translate/de-en'],
     ['not prepared', 'python -m transformer.data.prepare']),
    (['--config.train.init_from=/nowhere'], ['/nowhere holds no run']),
    (['--nonsense=3'], ["Unknown command line flag 'nonsense'"]),
    (['stray'], ["unexpected argument 'stray'"]),
    (['--config'], ['Missing value for flag --config']),
])
def test_a_mistake_in_training_leaves_nothing(train, folder, tmp_path, flags, facts):
  workdir = tmp_path / 'run'
  message = train.refuses(f'--config={folder}/tiny.py', f'--workdir={workdir}', *flags)
  for fact in facts:
    assert fact in message, message
  assert not workdir.exists()


@pytest.mark.parametrize(('name', 'facts'), [
    ('nope.py', ['the config cannot be loaded', 'No such file', 'nope.py']),
    ('', ['the config cannot be loaded', 'Is a directory']),
    ('tiny.py:big', ['tiny.py:big', 'TypeError', 'get_config()']),
])
@pytest.mark.parametrize('flags', [[], ['--config.seed=3']])
def test_a_config_that_cannot_be_loaded_is_named(train, folder, tmp_path, name, facts, flags):
  message = train.refuses(f'--config={folder}/{name}', f'--workdir={tmp_path}/run', *flags)
  for fact in facts:
    assert fact in message, message
  assert not (tmp_path / 'run').exists()


def test_a_name_that_a_config_file_mistypes_is_named_too(train, folder, tmp_path):
  text = CONFIG.format(folder=str(folder)).replace('ff_dim', 'ff_dims')
  (tmp_path / 'mistyped.py').write_text(text, encoding='utf-8')
  message = train.refuses(f'--config={tmp_path}/mistyped.py', f'--workdir={tmp_path}/run')
  assert message == 'there is no key config.model.ff_dims; did you mean config.model.ff_dim?'


def test_both_config_and_workdir_are_needed(train, folder, tmp_path):
  for flags in ([], [f'--workdir={tmp_path}/run'], [f'--config={folder}/tiny.py'],
                [f'--config={folder}/tiny.py', '--workdir=']):
    assert '--config=configs/NAME.py and --workdir=DIR are both needed' in train.refuses(*flags)
  assert not (tmp_path / 'run').exists()


def test_overrides_come_after_the_config(train, folder, tmp_path):
  flags = '--config.seed=3', f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run'
  assert '--config.seed=3 in argv before a value for --config' in train.refuses(*flags)


def test_a_workdir_that_cannot_be_one_is_left_alone(train, folder, tmp_path):
  config = f'--config={folder}/tiny.py'
  (tmp_path / 'file').write_text('mine')
  for workdir in ('file', 'file/run'):
    message = train.refuses(config, f'--workdir={tmp_path / workdir}')
    assert message.startswith('--workdir needs a directory') and f'{tmp_path}/file is' in message
  (tmp_path / 'full').mkdir()
  (tmp_path / 'full' / 'thesis.tex').write_text('mine')
  message = train.refuses(config, f'--workdir={tmp_path}/full')
  assert f'{tmp_path}/full is not empty and holds no run' in message
  assert os.listdir(tmp_path / 'full') == ['thesis.tex']
  assert (tmp_path / 'file').read_text() == 'mine'


def test_a_workdir_of_another_run_names_every_difference(train, folder, trained):
  before = {path: path.stat().st_mtime_ns for path in trained.rglob('*') if path.is_file()}
  flags = f'--config={folder}/tiny.py', f'--workdir={trained}'
  message = train.refuses(*flags, '--config.model.ff_dim=13', '--config.seed=5',
                          '--config.decode.beam_size=2')
  assert 'belongs to a run with another configuration' in message
  assert 'model.ff_dim was 11, is 13' in message and 'seed was 0, is 5' in message
  assert 'beam_size' not in message
  assert {path: path.stat().st_mtime_ns
          for path in trained.rglob('*') if path.is_file()} == before


@pytest.mark.parametrize(('name', 'text', 'facts'), [
    ('config.json', '{"seed": ', ['config.json', 'cannot be read']),
    ('config.json', '[]', ['config.json', 'JSON object']),
    ('vocabulary.model', 'torn', ['vocabulary.model', 'damaged']),
    ('run.json', '{', ['run.json', 'cannot be read']),
])
def test_a_damaged_run_is_not_resumed(train, folder, trained, tmp_path, name, text, facts):
  shutil.copytree(trained, tmp_path / 'run')
  (tmp_path / 'run' / name).write_text(text)
  message = train.refuses(f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run')
  for fact in facts:
    assert fact in message, message
  assert (tmp_path / 'run' / name).read_text() == text


def test_a_run_is_not_resumed_on_other_data(train, folder, trained, tmp_path):
  write_text(tmp_path, 'train', ENGLISH * 3, GERMAN[:3] * 4)
  write_text(tmp_path, 'valid', ENGLISH[:2], GERMAN[:2])
  message = train.refuses(f'--config={folder}/tiny.py', f'--workdir={trained}',
                          f'--config.data.dir={tmp_path}')
  assert 'was trained on other data: train train changed' in message


@pytest.mark.parametrize(('flags', 'facts'), [
    (['--workdir='], ['--workdir=DIR is needed']),
    (['--workdir=/nowhere'], ['/nowhere holds no run', 'config.json']),
    (['--reference=x'], ['--reference needs --source']),
    (['--split=test', '--source=x'], ['--split and --source exclude each other']),
    (['--average=0'], ['--average must be at least 1; got 0']),
    (['--average=5'], ['there are 2 checkpoints up to step 2, fewer than the 5', 'train.keep']),
    (['--checkpoint=9'], ['best, latest or one of the steps 1, 2', "got '9'"]),
    (['--checkpoint=bset'], ['best, latest or one of the steps 1, 2', "got 'bset'"]),
    (['--beam_size=0'], ['decode.beam_size must be at least 1; got 0']),
    (['--beam_size=1.5'], ['--beam_size=1.5', 'int']),
    (['--alpha=-1'], ['decode.alpha must be at least 0 and finite; got -1.0']),
    (['--source=/nowhere/x'], ['/nowhere/x', 'there is no folder /nowhere']),
    (['--split=nothing'], ['nothing.en', 'holds']),
    (['--data_dir=/nowhere'], ['/nowhere/test.en', 'there is no folder /nowhere']),
    (['--source={folder}/test.en', '--reference={folder}/unequal.de'],
     ['test.en has 2 lines', 'unequal.de has 3']),
    (['--source={folder}/latin.de'], ['latin.de must be UTF-8; line 2 is not']),
    (['--source={folder}/empty', '--reference={folder}/empty'], ['nothing to score', 'empty is']),
    (['--source={folder}/test.en', '--output={folder}'], ['--output must name a file']),
    (['--source={folder}/test.en', '--output={folder}/test.en/x'],
     ['--output needs a directory', 'test.en is a file']),
    (['--nonsense=3'], ["Unknown command line flag 'nonsense'"]),
    (['stray'], ["unexpected argument 'stray'"]),
])
def test_a_mistake_in_scoring_is_one_line(evaluate, folder, trained, flags, facts):
  flags = [flag.format(folder=folder) for flag in flags]
  message = evaluate.refuses(f'--workdir={trained}', *flags)
  for fact in facts:
    assert fact in message, message
  assert not (trained / 'eval').exists()


def test_a_run_without_a_checkpoint_cannot_be_scored(evaluate, trained, tmp_path):
  shutil.copytree(trained, tmp_path / 'run', ignore=shutil.ignore_patterns('checkpoints'))
  assert 'no checkpoint; train the run first' in evaluate.refuses(f'--workdir={tmp_path}/run')
  (tmp_path / 'run' / 'checkpoints').mkdir()
  assert 'no checkpoint; train the run first' in evaluate.refuses(f'--workdir={tmp_path}/run')


def test_a_folder_that_may_not_be_written_to_is_refused_before_the_work(tmp_path, monkeypatch):
  command_line.check_folder('workdir', tmp_path / 'a' / 'b')
  assert not (tmp_path / 'a').exists()
  asked = []
  monkeypatch.setattr(command_line.os, 'access', lambda *each: asked.append(each))
  with pytest.raises(UserError, match=f'--workdir .* {tmp_path} may not be written to'):
    command_line.check_folder('workdir', tmp_path / 'a' / 'b')
  assert asked == [(tmp_path, os.W_OK)]


@pytest.mark.parametrize('name', ['train', 'eval'])
def test_as_a_process_a_command_helps_and_refuses(name, tmp_path):
  def run(*flags):
    return subprocess.run([sys.executable, f'{name}.py', *flags], cwd=ROOT, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL)

  spec = importlib.util.spec_from_file_location(name, ROOT / f'{name}.py')
  helped = run('--help')
  for line in pathlib.Path(spec.origin).read_text(encoding='utf-8').split('"""')[1].splitlines():
    assert line in helped.stdout
  for flag in re.findall(r"DEFINE\w+\('(\w+)'", pathlib.Path(spec.origin).read_text('utf-8')):
    assert f'--{flag}' in helped.stdout or f'--[no]{flag}' in helped.stdout
  assert helped.stderr == ''
  refused = run(f'--workdir={tmp_path}/run', '--nonsense')
  assert (refused.returncode, refused.stdout) == (1, '')
  assert 'nonsense' in one_error(refused.stderr) and len(refused.stderr.splitlines()) == 1
