"""The command exports a run to other formats, and makes a run of weights again."""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import ctranslate2
import jax
import numpy as np
import pytest
import sentencepiece

from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.runs.loading import load_run
from transformer.tools.convert import safetensors_format

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope='module')
def export(start_command):
  yield from start_command('transformer.tools.convert.__main__')


@pytest.fixture(scope='module')
def weights(export, trained, folder):
  path = folder / 'weights' / 'run.safetensors'
  status, out, err = export('--format=safetensors', f'--workdir={trained}', f'--output={path}')
  assert status == 0, err
  assert out.startswith(f'{path}: a safetensors file, step ')
  return path


@pytest.fixture(scope='module')
def returned(export, weights, folder):
  """The run that the command makes of the safetensors file."""
  workdir = folder / 'returned'
  status, out, err = export('--format=run', f'--weights={weights}', f'--output={workdir}')
  assert status == 0, err
  assert out.strip().endswith(f'python eval.py --workdir={workdir}')
  return workdir


def names(folder):
  return sorted(path.name for path in folder.iterdir())


@pytest.mark.long
@pytest.mark.parametrize('quantization', ['float32', 'int8'])
def test_ctranslate2_loads_the_folder_as_it_is(export, evaluate, trained, folder, quantization):
  output = folder / 'peers' / quantization
  flags = [] if quantization == 'float32' else [f'--quantization={quantization}']
  status, out, err = export('--format=ctranslate2', f'--workdir={trained}', f'--output={output}',
                            *flags)
  assert status == 0, err
  assert out.startswith(f'{output}: a CTranslate2 model, {quantization}, step ')
  assert names(output) == ['config.json', 'model.bin', 'shared_vocabulary.json',
                           'vocabulary.model']
  text = (folder / 'test.en').read_text('utf-8').splitlines()
  pieces = sentencepiece.SentencePieceProcessor(model_file=str(output / 'vocabulary.model'))
  translator = ctranslate2.Translator(str(output))
  status, out, err = evaluate(f'--workdir={trained}', f'--source={folder}/test.en',
                              '--beam_size=1')
  assert status == 0, err
  found = []
  for line in text:
    source = pieces.encode(line, out_type=str)
    result, = translator.translate_batch([source], beam_size=1, min_decoding_length=0,
                                         max_decoding_length=len(source) + 1 + 3)
    found.append(pieces.decode(result.hypotheses[0]))
  assert all(found)
  if quantization == 'float32':
    assert found == out.split('\n')[:-1]


@pytest.mark.long
def test_hugging_face_loads_the_folder_as_it_is(export, evaluate, trained, folder):
  output = folder / 'peers' / 'huggingface'
  status, out, err = export('--format=huggingface', f'--workdir={trained}', f'--output={output}')
  assert status == 0, err
  assert out.startswith(f'{output}: a MarianMT model for transformers, step ')
  assert names(output) == ['config.json', 'generation_config.json', 'model.safetensors',
                           'tokenizer.json', 'tokenizer_config.json', 'vocabulary.model']
  pytest.importorskip('torch', reason='tests/huggingface.txt has the packages')
  transformers = pytest.importorskip('transformers',
                                     reason='tests/huggingface.txt has the packages')
  status, out, err = evaluate(f'--workdir={trained}', f'--source={folder}/test.en',
                              '--beam_size=1')
  assert status == 0, err
  model = transformers.AutoModelForSeq2SeqLM.from_pretrained(output)
  tokenizer = transformers.AutoTokenizer.from_pretrained(output)
  vocabulary = Vocabulary.load(output / 'vocabulary.model')
  found = []
  for line in (folder / 'test.en').read_text('utf-8').splitlines():
    source = tokenizer(line, return_tensors='pt')
    result = model.generate(**source, num_beams=1, length_penalty=1.0, early_stopping=False,
                            max_new_tokens=source['input_ids'].shape[1] + 3)
    # A model of two steps spells bytes that are not UTF-8, which the library replaces otherwise.
    found.append(vocabulary.decode(result[0].numpy()))
  assert all(found) and found == out.split('\n')[:-1]


@pytest.mark.long
def test_a_run_comes_back_bit_for_bit(export, evaluate, trained, weights, returned, folder):
  old, new = load_run(trained), load_run(returned)
  assert (old.config, old.steps) == (new.config, new.steps)
  assert old.vocabulary.model_bytes == new.vocabulary.model_bytes
  assert jax.tree.structure(old.params) == jax.tree.structure(new.params)
  for one, other in zip(jax.tree.leaves(old.params), jax.tree.leaves(new.params), strict=True):
    assert one.dtype == other.dtype and np.asarray(one).tobytes() == np.asarray(other).tobytes()
  translations = [evaluate(f'--workdir={each}', f'--source={folder}/test.en')[1]
                  for each in (trained, returned)]
  assert translations[0] == translations[1] and translations[0].strip()
  again = folder / 'weights' / 'again.safetensors'
  assert export('--format=safetensors', f'--workdir={returned}', f'--output={again}')[0] == 0
  assert again.read_bytes() == weights.read_bytes()


@pytest.mark.long
def test_a_hugging_face_folder_comes_back_as_a_run(export, evaluate, trained, folder):
  there, back = folder / 'peers' / 'there', folder / 'peers' / 'back'
  assert export('--format=huggingface', f'--workdir={trained}', f'--output={there}')[0] == 0
  status, out, err = export('--format=run', f'--weights={there}', f'--output={back}')
  assert status == 0, err
  assert out.startswith(f'{back}: a run of weights alone, of a folder for transformers; ')
  old, new = load_run(trained), load_run(back)
  assert new.vocabulary.fingerprint == old.vocabulary.fingerprint
  for one, other in zip(*map(jax.tree.leaves, (old.params, new.params)), strict=True):
    np.testing.assert_allclose(one, other, rtol=3e-7)
  status, out, err = evaluate(f'--workdir={back}', f'--source={folder}/test.en')
  assert status == 0 and out.count('\n') == 2, err
  (there / 'model.safetensors').unlink()
  assert 'should hold its weights as model.safetensors' in export.refuses(
      '--format=run', f'--weights={there}', f'--output={folder}/none')
  assert not (folder / 'none').exists()


def test_a_run_with_a_moving_average_uses_the_weights_of_the_file(export, weights, folder):
  path, back = folder / 'weights' / 'ema.safetensors', folder / 'ema_back'
  given = safetensors_format.read(weights)
  given.config['train']['ema_decay'] = 0.5
  safetensors_format.write(path, given)
  assert export('--format=run', f'--weights={path}', f'--output={back}')[0] == 0
  for one, other in zip(*map(jax.tree.leaves, (given.params, load_run(back).params)), strict=True):
    assert one.tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize(('group', 'key', 'value', 'message'), [
    ('model', 'ff_dim', 13, 'the parameter decoder_0.feed_forward.inner.bias should be [13] of '
                            'float32, as the config says; it is [11] of float32'),
    ('model', 'norm', 'pre', 'decoder_norm.bias should be [8] of float32, as the config says; it '
                             'is none'),
    ('model', 'num_heads', 3, 'num_heads must divide model_dim'),
    ('model', 'heads', 3, 'there is no key config.model.heads')])
def test_weights_of_another_config_are_refused(export, weights, folder, group, key, value, message):
  path = folder / 'weights' / f'{key}.safetensors'
  given = safetensors_format.read(weights)
  given.config[group][key] = value
  safetensors_format.write(path, given)
  assert message in export.refuses('--format=run', f'--weights={path}', f'--output={folder}/none')
  assert not [name for name in names(folder) if name.startswith('none')]


@pytest.mark.long
def test_training_can_start_from_weights_but_not_resume_them(train, returned, folder):
  before = digest_of(returned)
  for flags in ((), ('--check',)):
    line = train.refuses(f'--config={folder}/tiny.py', f'--workdir={returned}', *flags)
    assert line == (f'{returned} holds weights alone, with which a run cannot go on; start another '
                    f'from them: --workdir=NEW --config.train.init_from={returned}')
  assert digest_of(returned) == before
  status, _, err = train(f'--config={folder}/tiny.py', f'--workdir={folder}/next',
                         f'--config.train.init_from={returned}', '--config.train.steps=1',
                         '--config.train.checkpoint_every=1')
  assert status == 0, err


def digest_of(folder):
  return {path: hashlib.sha256(path.read_bytes()).hexdigest()
          for path in sorted(folder.rglob('*')) if path.is_file() and path.name != 'lock'}


@pytest.mark.parametrize(('flags', 'message'), [
    ([], '--format must be one of ctranslate2, huggingface, safetensors, run; got None'),
    (['--format=onnx'], "got 'onnx'"),
    (['--format=ctranslate2', '--output=OUT'], 'needs --workdir, and takes no --weights'),
    (['--format=run', '--workdir=RUN', '--output=OUT'], 'needs --weights, and takes no --workdir'),
    (['--format=run', '--weights=FILE', '--workdir=RUN', '--output=OUT'], 'takes no --workdir'),
    (['--format=safetensors', '--workdir=RUN'], '--output is needed'),
    (['--format=safetensors', '--workdir=RUN', '--output=OUT', '--quantization=int8'],
     '--quantization is for --format=ctranslate2'),
    (['--format=huggingface', '--workdir=RUN', '--output=OUT', '--quantization=int8'],
     '--quantization is for --format=ctranslate2'),
    (['--format=ctranslate2', '--workdir=RUN', '--output=OUT', '--quantization=int4'],
     "must be one of float32, float16, int16, int8, int8_float32, int8_float16; got 'int4'"),
    (['--format=ctranslate2', '--workdir=RUN', '--output=OUT', '--average=0'], 'at least 1'),
    (['--format=ctranslate2', '--workdir=RUN', '--output=OUT', '--checkpoint=9'],
     'checkpoint must be best, latest or one of the steps 1, 2'),
    (['--format=ctranslate2', '--workdir=GONE', '--output=OUT'], 'holds no run'),
    (['--format=ctranslate2', '--workdir=RUN', '--output=RUN'], 'holds something'),
    (['--format=safetensors', '--workdir=RUN', '--output=FILE'], 'must not exist yet'),
    (['--format=safetensors', '--workdir=RUN', '--output=RUN'], 'must not exist yet'),
    (['--format=ctranslate2', '--workdir=RUN', '--output=FILE/x'], 'needs a directory'),
    (['--format=run', '--weights=GONE', '--output=OUT'], 'cannot be read'),
    (['--format=run', '--weights=RUN/config.json', '--output=OUT'],
     'should be a safetensors file')])
def test_mistakes_are_one_line_and_leave_nothing(export, trained, weights, folder, flags, message):
  places = {'RUN': trained, 'FILE': weights, 'GONE': folder / 'gone', 'OUT': folder / 'none' / 'x'}
  for name, path in places.items():
    flags = [flag.replace(f'={name}', f'={path}') for flag in flags]
  before = names(folder)
  assert message in export.refuses(*flags)
  assert names(folder) == before


@pytest.mark.parametrize(('format', 'library'), [('ctranslate2', 'CTranslate2'),
                                                 ('huggingface', 'MarianMT')])
def test_a_model_that_a_library_cannot_hold_is_named(export, trained, folder, change_settings,
                                                     format, library):
  workdir = folder / f'normalised_{format}'
  workdir.mkdir()
  shutil.copy(trained / 'config.json', workdir)
  change_settings(workdir, model__query_key_norm=True)
  line = export.refuses(f'--format={format}', f'--workdir={workdir}', f'--output={folder}/none')
  assert f'{library} cannot hold model.query_key_norm=True' in line


@pytest.mark.long(but=('ctranslate2-ctranslate2',))
@pytest.mark.parametrize(('format', 'package'), [
    ('ctranslate2', 'ctranslate2'), ('safetensors', 'safetensors'), ('huggingface', 'safetensors')])
def test_a_missing_package_is_named(trained, folder, format, package, one_error):
  code = (f"import sys; sys.modules['{package}'] = None; "
          "from transformer.system import command_line; "
          "from transformer.tools.convert import __main__; command_line.run(__main__.main)")
  done = subprocess.run(
      [sys.executable, '-c', code, f'--format={format}', f'--workdir={trained}',
       f'--output={folder}/none'], cwd=ROOT, env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
      capture_output=True, text=True, check=False)
  assert done.returncode == 1
  line = one_error(done.stderr)
  assert line.startswith(f'--format={format} needs {package}, which is not installed')
  path = ROOT / 'transformer' / 'tools' / 'convert' / 'requirements.txt'
  assert path.exists() and line.endswith(f'-m pip install -r {shlex.quote(str(path))}')


@pytest.mark.long
@pytest.mark.parametrize('format', ['ctranslate2', 'run'])
def test_a_failed_export_leaves_no_folder(trained, weights, folder, one_error, format):
  output, source = folder / 'full' / format, (
      f'--weights={weights}' if format == 'run' else f'--workdir={trained}')
  done = subprocess.run(
      ['bash', '-c', 'ulimit -f 4 && exec "$@"', 'bash', sys.executable, '-m',
       'transformer.tools.convert', f'--format={format}', source, f'--output={output}'],
      cwd=ROOT, env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'JAX_ENABLE_COMPILATION_CACHE': '0'},
      capture_output=True, text=True, check=False)
  assert done.returncode == 1
  assert 'cannot be written' in one_error(done.stderr)
  assert names(output.parent) == []
