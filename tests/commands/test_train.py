"""A mistake in training ends in one line and status 1, with nothing half written."""

import io
import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from tests.commands.conftest import ENGLISH, GERMAN
from tests.training.test_samples import cells, kept, shown
from transformer import training_run
from transformer.config import Config
from transformer.data.audit_table import in_brief
from transformer.inference.attention_maps import Attender, picture
from transformer.model.attention_weights import AttentionWeights
from transformer.run import load_run
from transformer.training import run_directory
from transformer.training.meter import WALL_CLOCK


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
    (['--config.model.attention=cudnn', '--config.model.dtype=bfloat16',
      '--config.model.model_dim=16'],
     ['model.attention=cudnn needs an NVIDIA GPU', 'cpu here', 'model.attention=reference']),
    (["--config.data={'dir': 3}"], ['config.data.dir must be of type str; got 3']),
    (['--config.data.train='], ['must not hold an empty name']),
    (["--config.data.train=('train', 'train')"], ['each corpus once', 'data.train_weights']),
    (['--config.data.dir=/nowhere'], ['/nowhere/train.en', 'there is no folder /nowhere; if the '
                                      'data lies elsewhere, give --config.data.dir=DIR']),
    (['--config.data.train=nothing'], ['nothing.en', 'holds']),
    (['--config.data.valid=nothing'], ['nothing.en', 'holds']),
    (['--config.data.train=unequal'], ['unequal.en has 4 lines', 'unequal.de has 3']),
    (['--config.data.train=latin'], ['latin.de must be UTF-8; line 2 is not']),
    (['--config.data.train=long'], ['no pair left to train on', 'data.max_length']),
    (['--config.data.train_weights=(0.01,)'], ['data.train_weights', '0.01 of 6 rows, 12 pairs']),
    (['--config.data.vocabulary_size=30000'], ['vocabulary_size=30000', 'at most']),
    (['--config.data.source=tfds', '--config.data.name=phrasebok'], ["'phrasebok'", 'phrasebook']),
    (['--config.data.source=tfds', '--config.data.name=wmt14_translate/de-en'],
     ['not prepared', 'python -m transformer.data.prepare']),
    (['--config.train.init_from=/nowhere'], ['/nowhere holds no run']),
    *(([f'--profile={window}'], ['--profile must be FROM:TO', f'got {window!r}'])
      for window in ('', '3', '3:', ':3', '0:3', '5:3', '-1:3', '1.5:3', '1:2:3', 'a:b', '1: 2')),
    (['--profile=3:4'], ['--profile=3:4 begins after the last step, train.steps=2']),
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
    ('nope.py', ['the config cannot be loaded', 'No such file', 'nope.py', 'it was looked for in /',
                 '--config takes the path of a file']),
    ('', ['the config cannot be loaded', 'Is a directory']),
    ('train.de', ['the config cannot be loaded', 'SyntaxError']),
    ('tiny.py:big', ['tiny.py:big', 'TypeError', 'get_config()']),
])
@pytest.mark.parametrize('flags', [[], ['--config.seed=3']])
def test_a_config_that_cannot_be_loaded_is_named(train, folder, tmp_path, name, facts, flags):
  message = train.refuses(f'--config={folder}/{name}', f'--workdir={tmp_path}/run', *flags)
  for fact in facts:
    assert fact in message, message
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('argument', ['bgi', '', 'en-fr,big', 'big,en-xx', 'big,en-fr,base'])
@pytest.mark.parametrize('flags', [[], ['--config.seed=3']])
def test_an_argument_that_a_config_does_not_take_is_refused(train, tmp_path, argument, flags):
  message = train.refuses(f'--config=configs/wmt14.py:{argument}', f'--workdir={tmp_path}/run',
                          *flags)
  assert message == ('configs/wmt14.py takes a size, base or big, then a direction, en-de, de-en, '
                     f'en-fr, fr-en, such as configs/wmt14.py:big,en-fr; got {argument!r}')
  assert not (tmp_path / 'run').exists()


def test_a_name_that_a_config_file_mistypes_is_named_too(train, folder, tmp_path):
  text = (folder / 'tiny.py').read_text(encoding='utf-8').replace('ff_dim', 'ff_dims')
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
                          '--config.decode.bleu_tokenize=none', '--config.decode.beam_size=2',
                          '--config.model.remat=True', '--config.decode.sample=True',
                          '--config.decode.temperature=0.5', '--config.decode.top_k=3',
                          '--config.decode.top_p=0.9')
  assert 'belongs to a run with another configuration' in message
  assert 'model.ff_dim was 11, is 13' in message and 'seed was 0, is 5' in message
  assert "decode.bleu_tokenize was '13a', is 'none'" in message and 'beam_size' not in message
  for name in ('remat', 'sample', 'temperature', 'top_k', 'top_p'):
    assert name not in message
  assert {path: path.stat().st_mtime_ns
          for path in trained.rglob('*') if path.is_file()} == before


def test_a_check_says_what_was_checked_and_leaves_nothing(train, folder, trained, tmp_path):
  for workdir, fact in ((tmp_path / 'run', 'is free for a run'),
                        (trained, 'holds this run, which would go on')):
    status, out, err = train(f'--config={folder}/tiny.py', f'--workdir={workdir}', '--check')
    assert (status, out) == (0, '')
    line, = err.splitlines()
    assert f'the flags and the config are fine, and --workdir={workdir} {fact}; ' in line
  assert not (tmp_path / 'run').exists()


def test_a_run_that_goes_on_with_another_number_of_cores_says_so(
    trained, tmp_path, monkeypatch):
  warnings = []
  monkeypatch.setattr(run_directory.logging, 'warning', lambda text, *each:
                      warnings.append(text % each))
  shutil.copy(trained / 'run.json', tmp_path)
  began = json.loads((trained / 'run.json').read_text('utf-8'))['devices']['cpu_cores']
  assert began == len(os.sched_getaffinity(0)) == run_directory.usable_cores()
  for cores, told in ((began, 0), (began + 3, 1), (began + 3, 1), (began, 2)):
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _, cores=cores: set(range(cores)))
    run_directory.add_session(tmp_path, False, {})
    assert len(warnings) == told
  assert warnings[0].startswith(f'the run goes on with {began + 3} CPU cores, and had {began} ')
  sessions = json.loads((tmp_path / 'run.json').read_text('utf-8'))['resumed']
  assert [each['devices']['cpu_cores'] for each in sessions] == [
      began, began + 3, began + 3, began]


def test_validation_while_training_is_greedy_however_the_run_decodes(
    trained, tmp_path, monkeypatch):
  settings = run_directory.read_config(trained)
  settings['decode'] |= {'sample': True, 'beam_size': 3}
  settings['train']['tokens_per_batch'] = 4 * 64  # A row for each device here.

  class Enough(Exception):
    """What is to be looked at has been handed over."""

  def translator(model, vocabulary, config, max_length, **_):
    raise Enough(config.beam_size, config.sample)

  monkeypatch.setattr(training_run, 'Translator', translator)
  with pytest.raises(Enough) as handed:
    training_run.train_run(Config.from_dict(settings), tmp_path / 'run')
  assert handed.value.args == (1, False)


@pytest.mark.parametrize(('name', 'text', 'facts'), [
    ('config.json', '{"seed": ', ['config.json should hold the run\'s config', 'is damaged']),
    ('vocabulary.model', 'torn', ['vocabulary.model is damaged', 'SHA-256 should be']),
    ('run.json', '{', ['run.json should hold the run\'s data fingerprints', 'is damaged']),
])
def test_a_damaged_run_is_not_resumed(train, folder, trained, tmp_path, name, text, facts):
  shutil.copytree(trained, tmp_path / 'run')
  (tmp_path / 'run' / name).write_text(text)
  message = train.refuses(f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run')
  for fact in facts:
    assert fact in message, message
  assert (tmp_path / 'run' / name).read_text() == text


@pytest.mark.parametrize(('name', 'fact'), [
    ('run.json', 'run.json is missing, though the run has checkpoints; restore it'),
    ('config.json', 'is not empty and holds no run')])
def test_a_run_that_lacks_a_file_is_not_taken_for_a_new_one(
    train, folder, trained, tmp_path, name, fact):
  shutil.copytree(trained, tmp_path / 'run')
  (tmp_path / 'run' / name).unlink()
  assert fact in train.refuses(f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run')
  assert not (tmp_path / 'run' / name).exists()


def test_a_run_begins_with_what_is_odd_about_its_text(train, folder, trained, tmp_path,
                                                      monkeypatch):
  about = json.loads((trained / 'audit.json').read_text('utf-8'))
  assert list(about['corpora']) == ['train/train', 'valid', 'test']
  assert about['vocabulary']['from'] == 'this run'
  # What is validated on are the first two pairs that are trained on.
  flags = f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run', '--config.train.steps=1'
  found = 'valid, overlap with training: the pair is in training too: 2 (100.00 %)'
  for wanted in (True, False):
    status, _, err = train(*flags)
    assert status == 0, err
    assert (found in err) is wanted  # It has begun, the second time.
    if wanted:  # A person reads little else before the first step.
      before = err.partition('] step 0 of 1: ')[0].splitlines()
      assert sum(line.startswith('I') for line in before) <= len(in_brief(about)) + 6, err


def test_much_text_is_not_looked_over_at_every_beginning(trained, tmp_path, monkeypatch):
  said = []
  monkeypatch.setattr(training_run, '_LOOKED_OVER', 3)
  monkeypatch.setattr(training_run.logging, 'info', lambda text, *each: said.append(text % each))
  corpora = training_run.open_corpora(Config.from_dict(run_directory.read_config(trained)).data)
  training_run._look_over(tmp_path, None, corpora, None)
  assert said == ['12 training pairs are too many to be looked over at every beginning; python -m '
                  'transformer.data.audit, with the same --config flags, does that']
  assert list(tmp_path.iterdir()) == []


def test_a_vocabulary_that_is_gone_is_made_again(train, folder, trained, tmp_path):
  shutil.copytree(trained, tmp_path / 'run')
  (tmp_path / 'run' / 'vocabulary.model').unlink()
  status, _, err = train(f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run')
  assert status == 0, err
  assert ((tmp_path / 'run' / 'vocabulary.model').read_bytes()
          == (trained / 'vocabulary.model').read_bytes())


def test_a_start_that_was_killed_is_begun_again(train, folder, trained, tmp_path):
  """Killed while config.json was written, or after vocabulary.model, which was damaged since."""
  begun, nearly = tmp_path / 'begun', tmp_path / 'nearly'
  begun.mkdir()
  (begun / f'config.json.elsewhere.7.{"0" * 32}.tmp').write_text('{"se')
  shutil.copytree(trained, nearly, ignore=shutil.ignore_patterns(
      'checkpoints', 'run.json', 'metrics.jsonl', 'tensorboard'))
  whole = (nearly / 'vocabulary.model').read_bytes()
  (nearly / 'vocabulary.model').write_bytes(whole.replace(b'man', b'nan', 1))
  for workdir in (begun, nearly):
    status, _, err = train(f'--config={folder}/tiny.py', f'--workdir={workdir}')
    assert status == 0, err
    assert (workdir / 'vocabulary.model').read_bytes() == whole
    assert rows_of(workdir) == rows_of(trained)


def test_run_json_says_whether_the_run_is_reproducible(train, folder, trained, tmp_path):
  about = json.loads((trained / 'run.json').read_text('utf-8'))
  assert about['reproducible'] is False
  assert not any('determin' in flag for flag in about['xla_flags'])
  flags = (f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run',
           '--config.train.reproducible=True')
  status, _, err = train(*flags)
  assert status == 0, err  # XLA dies of a flag that it does not know.
  about = json.loads((tmp_path / 'run' / 'run.json').read_text('utf-8'))
  assert about['reproducible'] is True
  assert about['xla_flags'][-2:] == ['--xla_gpu_deterministic_ops=true',
                                     '--xla_gpu_autotune_level=0']
  # On a CPU it changes nothing.
  with_flags, without = (rows_of(workdir) for workdir in (tmp_path / 'run', trained))
  assert with_flags == without
  status, _, err = train(*flags)
  assert status == 0, err
  session, = json.loads((tmp_path / 'run' / 'run.json').read_text('utf-8'))['resumed']
  assert (session['reproducible'], session['xla_flags']) == (True, about['xla_flags'])
  message = train.refuses(*flags[:2])
  assert 'train.reproducible was True, is False' in message


def rows_of(workdir):
  """metrics.jsonl without what a clock decides."""
  lines = (workdir / 'metrics.jsonl').read_text('utf-8').splitlines()
  return [{name: value for name, value in json.loads(line).items() if name not in WALL_CLOCK}
          for line in lines]


def test_a_run_is_not_resumed_on_other_data(train, folder, trained, tmp_path):
  for path in folder.glob('[tv]*.??'):
    shutil.copy(path, tmp_path)
  german = (tmp_path / 'train.de').read_text(encoding='utf-8').splitlines(keepends=True)
  (tmp_path / 'train.de').write_text(''.join(german[1:] + german[:1]), encoding='utf-8')
  message = train.refuses(f'--config={folder}/tiny.py', f'--workdir={trained}',
                          f'--config.data.dir={tmp_path}')
  assert 'was trained on other data: train/train changed' in message


def test_tensorboard_shows_sentences_of_the_validation_split_and_attention(trained):
  pictures = kept(trained, *(f'valid/attention_{kind}' for kind in AttentionWeights._fields))
  assert [step for step, _ in pictures] == [2, 2, 2]
  run = load_run(trained, 'latest')
  seen, = Attender(run.model, run.vocabulary, 64, 64)(run.params, ENGLISH[:1], GERMAN[:1])
  for (_, value), weights in zip(pictures, seen.weights, strict=True):
    with Image.open(io.BytesIO(value.image.encoded_image_string)) as image:
      np.testing.assert_allclose(np.asarray(image.convert('L')), picture(weights), atol=1)
  (step, markdown), = shown(trained)
  sources, references, translations = zip(*cells(markdown), strict=True)
  assert (step, list(sources), list(references)) == (2, ENGLISH[:2], GERMAN[:2])
  assert all(isinstance(each, str) for each in translations)
