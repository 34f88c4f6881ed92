"""The command exports a run to other formats, and makes a run of weights again."""

import dataclasses
import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import ctranslate2
import jax
import numpy as np
import pytest
import sentencepiece

from transformer.data.vocabulary.vocabulary import BYTE_IDS, Vocabulary
from transformer.runs.loading import load_run, save_run
from transformer.tools.convert import safetensors_format

ROOT = Path(__file__).parents[3]
SEPARATE = ['vocabulary.source.model', 'vocabulary.target.model']


@pytest.fixture(scope='module')
def command(start_command):
  yield from start_command('transformer.tools.convert.__main__')


@pytest.fixture(scope='module')
def export(command):
  """Returns a function that starts the command, checks that it succeeds, and returns what it says.
  """
  def export(*flags):
    status, out, err = command(*flags)
    assert status == 0, err
    return out
  return export


@pytest.fixture(scope='module')
def weights(export, trained, folder):
  path = folder / 'weights' / 'run.safetensors'
  out = export('--format=safetensors', f'--workdir={trained}', f'--output={path}')
  assert out.startswith(f'{path}: a safetensors file, step ')
  return path


@pytest.fixture(scope='module')
def returned(export, weights, folder):
  """The run that the command makes of the safetensors file."""
  workdir = folder / 'returned'
  out = export('--format=run', f'--weights={weights}', f'--output={workdir}')
  assert out.strip().endswith(f'python eval.py --workdir={workdir}')
  return workdir


def names(folder):
  return sorted(path.name for path in folder.iterdir())


def translated(folder, text, files):
  """Returns CTranslate2's translations of a file by an exported folder and its vocabulary."""
  source, target = (sentencepiece.SentencePieceProcessor(model_file=str(folder / files[side]))
                    for side in (0, -1))
  translator = ctranslate2.Translator(str(folder))
  lines = []
  for line in text.read_text('utf-8').splitlines():
    pieces = source.encode(line, out_type=str)
    result, = translator.translate_batch([pieces], beam_size=1, min_decoding_length=0,
                                         max_decoding_length=len(pieces) + 1 + 3)
    lines.append(target.decode(result.hypotheses[0]))
  return lines


def lines_of(evaluate, workdir, folder):
  status, out, err = evaluate(f'--workdir={workdir}', f'--source={folder}/test.en', '--beam_size=1')
  assert status == 0, err
  return out.split('\n')[:-1]


@pytest.mark.long
def test_ctranslate2_loads_the_folder_as_it_is(export, evaluate, trained, folder):
  for kind in ('float32', 'int8'):
    output = folder / 'peers' / kind
    out = export('--format=ctranslate2', f'--workdir={trained}', f'--output={output}',
                 f'--quantization={kind}')
    assert out.startswith(f'{output}: a CTranslate2 model, {kind}, step ')
    assert names(output) == ['config.json', 'model.bin', 'shared_vocabulary.json',
                             'vocabulary.model']
    lines = translated(output, folder / 'test.en', ['vocabulary.model'])
    assert all(lines)
    assert kind == 'int8' or lines == lines_of(evaluate, trained, folder)


@pytest.mark.long
def test_hugging_face_loads_the_folder_as_it_is(export, evaluate, trained, folder):
  output = folder / 'peers' / 'huggingface'
  out = export('--format=huggingface', f'--workdir={trained}', f'--output={output}')
  assert out.startswith(f'{output}: a MarianMT model for transformers, step ')
  pytest.importorskip('torch', reason='tests/huggingface.txt has the packages')
  transformers = pytest.importorskip('transformers',
                                     reason='tests/huggingface.txt has the packages')
  model = transformers.AutoModelForSeq2SeqLM.from_pretrained(output)
  tokenizer = transformers.AutoTokenizer.from_pretrained(output)
  vocabulary = Vocabulary.load(output / 'vocabulary.model')
  lines = []
  for line in (folder / 'test.en').read_text('utf-8').splitlines():
    source = tokenizer(line, return_tensors='pt')
    result = model.generate(**source, num_beams=1, length_penalty=1.0, early_stopping=False,
                            max_new_tokens=source['input_ids'].shape[1] + 3)
    # A model of two steps spells bytes that are not UTF-8, which the library replaces otherwise.
    lines.append(vocabulary.decode(result[0].numpy()))
  assert all(lines) and lines == lines_of(evaluate, trained, folder)


@pytest.mark.long
def test_a_run_comes_back_bit_for_bit(export, evaluate, trained, weights, returned, folder):
  old, new = load_run(trained), load_run(returned)
  assert (old.config, old.steps) == (new.config, new.steps)
  assert old.vocabulary.model_bytes == new.vocabulary.model_bytes
  assert jax.tree.structure(old.params) == jax.tree.structure(new.params)
  for one, other in zip(jax.tree.leaves(old.params), jax.tree.leaves(new.params), strict=True):
    assert one.dtype == other.dtype and np.asarray(one).tobytes() == np.asarray(other).tobytes()
  assert lines_of(evaluate, trained, folder) == lines_of(evaluate, returned, folder)
  again = folder / 'weights' / 'again.safetensors'
  export('--format=safetensors', f'--workdir={returned}', f'--output={again}')
  assert again.read_bytes() == weights.read_bytes()


@pytest.mark.long
@pytest.mark.parametrize('kind', ['trained', 'separate'])
def test_a_hugging_face_folder_comes_back_as_a_run(export, evaluate, folder, request, tmp_path,
                                                   kind):
  workdir, there, back = request.getfixturevalue(kind), tmp_path / 'there', tmp_path / 'back'
  export('--format=huggingface', f'--workdir={workdir}', f'--output={there}')
  out = export('--format=run', f'--weights={there}', f'--output={back}')
  assert out.startswith(f'{back}: a run of weights alone, of a folder for transformers; ')
  old, new = load_run(workdir), load_run(back)
  assert new.config.data.target_language == 'de' or kind == 'trained'
  assert new.config.model == dataclasses.replace(old.config.model, num_layers=1,
                                                 decoder_layers=1)
  for file in SEPARATE if kind == 'separate' else ['vocabulary.model']:
    assert (back / file).read_bytes() == (workdir / file).read_bytes()
  for one, other in zip(*map(jax.tree.leaves, (old.params, new.params)), strict=True):
    np.testing.assert_allclose(one, other, rtol=3e-7)
  assert len(lines_of(evaluate, back, folder)) == 2


def test_a_vocabulary_for_each_language_goes_along(export, evaluate, separate, folder, tmp_path):
  trained, run, output = load_run(separate), tmp_path / 'run', tmp_path / 'model'
  path, again = tmp_path / 'run.safetensors', tmp_path / 'again'
  export('--format=safetensors', f'--workdir={separate}', f'--output={path}')
  export('--format=run', f'--weights={path}', f'--output={again}')
  assert [(again / name).read_bytes() for name in SEPARATE] == [
      (separate / name).read_bytes() for name in SEPARATE]
  # All vocabularies have the bytes, so this run prefers to write other pieces.
  table_ND = np.random.default_rng(1).normal(size=(310, 8)).astype(np.float32)
  table_ND[:BYTE_IDS.stop] *= 0.1
  save_run(run, trained.config, trained.vocabulary,
           trained.params | {'target_embedding': {'table': table_ND}}, [7])
  export('--format=ctranslate2', f'--workdir={run}', f'--output={output}')
  lines = translated(output, folder / 'test.en', SEPARATE)
  assert lines == lines_of(evaluate, run, folder)
  assert all(len(line) > 5 and line.isprintable() for line in lines)


def test_a_run_with_a_moving_average_uses_the_weights_of_the_file(export, weights, folder):
  path, back = folder / 'weights' / 'ema.safetensors', folder / 'ema_back'
  given = safetensors_format.read(weights)
  given.config['train']['ema_decay'] = 0.5
  safetensors_format.write(path, given)
  export('--format=run', f'--weights={path}', f'--output={back}')
  for one, other in zip(*map(jax.tree.leaves, (given.params, load_run(back).params)), strict=True):
    assert one.tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize(('group', 'key', 'value', 'message'), [
    ('model', 'ff_dim', 13, 'the parameter decoder_0.feed_forward.inner.bias should be [13] of '
                            'float32, as the config says; it is [11] of float32'),
    ('model', 'heads', 3, 'there is no key config.model.heads')])
def test_weights_of_another_config_are_refused(command, weights, folder, group, key, value,
                                               message):
  path = folder / 'weights' / f'{key}.safetensors'
  given = safetensors_format.read(weights)
  given.config[group][key] = value
  safetensors_format.write(path, given)
  assert message in command.refuses('--format=run', f'--weights={path}', f'--output={folder}/none')
  assert not [name for name in names(folder) if name.startswith('none')]


@pytest.mark.long
def test_training_can_start_from_weights_but_not_resume_them(train, returned, folder):
  before = digest_of(returned)
  line = train.refuses(f'--config={folder}/tiny.py', f'--workdir={returned}')
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
    ('', '--format is needed, one of ctranslate2, huggingface, safetensors, run'),
    ('--format=ctranslate2 --output=OUT', 'needs --workdir, and takes no --weights'),
    ('--format=run --weights=FILE --workdir=RUN --output=OUT', 'takes no --workdir'),
    ('--format=safetensors --workdir=RUN', '--output is needed'),
    ('--format=huggingface --workdir=RUN --output=OUT --quantization=int8',
     '--quantization is for --format=ctranslate2'),
    ('--format=ctranslate2 --workdir=RUN --output=OUT --average=0', 'at least 1'),
    ('--format=ctranslate2 --workdir=RUN --output=OUT --checkpoint=9',
     'checkpoint must be best, latest or one of the steps 1, 2'),
    ('--format=ctranslate2 --workdir=GONE --output=OUT', 'holds no run'),
    ('--format=ctranslate2 --workdir=RUN --output=RUN', 'must be a new or empty folder'),
    ('--format=safetensors --workdir=RUN --output=FILE', 'must be a new or empty folder'),
    ('--format=run --weights=GONE --output=OUT', 'cannot be read'),
    ('--format=run --weights=RUN/config.json --output=OUT', 'should be a safetensors file')])
def test_mistakes_are_one_line_and_leave_nothing(command, trained, weights, folder, flags, message):
  for name, path in {'RUN': trained, 'FILE': weights, 'GONE': folder / 'gone',
                     'OUT': folder / 'none' / 'x'}.items():
    flags = flags.replace(f'={name}', f'={path}')
  before = names(folder)
  assert message in command.refuses(*flags.split())
  assert not (folder / 'none' / 'x').exists() and set(names(folder)) <= {*before, 'none'}


@pytest.mark.long
def test_a_missing_package_is_named(trained, folder, one_error):
  code = ("import sys; sys.modules['ctranslate2'] = None; "
          "from transformer.system import command_line; "
          "from transformer.tools.convert import __main__; command_line.run(__main__.main)")
  done = subprocess.run(
      [sys.executable, '-c', code, '--format=ctranslate2', f'--workdir={trained}',
       f'--output={folder}/none'], cwd=ROOT, env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
      capture_output=True, text=True, check=False)
  assert done.returncode == 1
  line = one_error(done.stderr)
  assert line.startswith('--format=ctranslate2 needs ctranslate2, which is not installed')
  path = ROOT / 'transformer' / 'tools' / 'convert' / 'requirements.txt'
  assert path.exists() and line.endswith(f'-m pip install -r {shlex.quote(str(path))}')
