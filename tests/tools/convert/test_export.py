"""The command exports a run to other formats, and makes a run of weights again."""

import dataclasses
import importlib.util
import os
import shutil
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
# Another tool writes the card.
CARD = ['README.md'] if importlib.util.find_spec('transformer.tools.card') else []
SEPARATE = ['vocabulary.source.model', 'vocabulary.target.model']


@pytest.fixture(scope='module')
def command(start_command):
  yield from start_command('transformer.tools.convert.__main__')


@pytest.fixture(scope='module')
def export(command):
  """Returns a function that converts a run, or weights, and returns what the command says."""

  def export(kind, source, output, *flags):
    where = 'weights' if kind == 'run' else 'workdir'
    status, out, err = command(
      f'--format={kind}', f'--{where}={source}', f'--output={output}', *flags
    )
    assert status == 0, err
    assert out.startswith(f'{output}: ')
    return out.removeprefix(f'{output}: ')

  return export


@pytest.fixture(scope='module')
def weights(export, trained, folder):
  path = folder / 'weights' / 'run.safetensors'
  assert export('safetensors', trained, path).startswith('a safetensors file, step ')
  return path


def names(folder):
  return sorted(path.name for path in folder.iterdir())


def translated(folder, text, files):
  """Returns CTranslate2's translations of a file by an exported folder and its vocabulary."""
  source, target = (
    sentencepiece.SentencePieceProcessor(model_file=str(folder / files[side]))
    for side in (0, -1)
  )
  translator = ctranslate2.Translator(str(folder))
  lines = []
  for line in text.read_text('utf-8').splitlines():
    pieces = source.encode(line, out_type=str)
    (result,) = translator.translate_batch(
      [pieces],
      beam_size=1,
      min_decoding_length=0,
      max_decoding_length=len(pieces) + 1 + 3,
    )
    lines.append(target.decode(result.hypotheses[0]))
  return lines


def lines_of(evaluate, workdir, folder):
  status, out, err = evaluate(
    f'--workdir={workdir}', f'--source={folder}/test.en', '--beam_size=1'
  )
  assert status == 0, err
  return out.split('\n')[:-1]


@pytest.mark.long
def test_ctranslate2_loads_the_folder_as_it_is(
  export, evaluate, trained, tmp_path, folder
):
  for kind in ('float32', 'int8'):
    output = tmp_path / kind
    out = export('ctranslate2', trained, output, f'--quantization={kind}')
    assert out.startswith(f'a CTranslate2 model, {kind}, step ')
    assert names(output) == [
      *CARD,
      'config.json',
      'model.bin',
      'shared_vocabulary.json',
      'vocabulary.model',
    ]
    lines = translated(output, folder / 'test.en', ['vocabulary.model'])
    assert all(lines)
    assert kind == 'int8' or lines == lines_of(evaluate, trained, folder)


@pytest.mark.long
def test_an_export_carries_the_card_and_the_report_of_its_run(
  export, trained, tmp_path
):
  pytest.importorskip('transformer.tools.card')
  run = shutil.copytree(trained, tmp_path / 'run')
  export('huggingface', run, tmp_path / 'new', '--checkpoint=1')
  card = (tmp_path / 'new' / 'README.md').read_text('utf-8')
  assert card.startswith('---\n') and '| step 1 |' in card and 'Not scored yet' in card
  assert not (run / 'README.md').exists()
  for name in ('README.md', 'report.html'):
    (run / name).write_text(f'my {name}', 'utf-8')
  export('ctranslate2', run, tmp_path / 'carried')
  copied = tmp_path / 'carried'
  assert (copied / 'report.html').read_text('utf-8') == 'my report.html'
  card = (copied / 'README.md').read_text('utf-8')
  assert (
    card.startswith('my README.md\n') and 'A CTranslate2 model, float32, step' in card
  )


@pytest.mark.long
def test_hugging_face_loads_the_folder_as_it_is(
  export, evaluate, trained, folder, tmp_path
):
  output = tmp_path / 'huggingface'
  out = export('huggingface', trained, output)
  assert out.startswith('a MarianMT model for transformers, step ')
  pytest.importorskip(
    'torch', reason='tests/requirements-huggingface.txt has the packages'
  )
  transformers = pytest.importorskip(
    'transformers', reason='tests/requirements-huggingface.txt has the packages'
  )
  model = transformers.AutoModelForSeq2SeqLM.from_pretrained(output)
  tokenizer = transformers.AutoTokenizer.from_pretrained(output)
  vocabulary = Vocabulary.load(output / 'vocabulary.model')
  lines = []
  for line in (folder / 'test.en').read_text('utf-8').splitlines():
    source = tokenizer(line, return_tensors='pt')
    result = model.generate(
      **source,
      num_beams=1,
      length_penalty=1.0,
      early_stopping=False,
      max_new_tokens=source['input_ids'].shape[1] + 3,
    )
    # A model of two steps spells bytes that are not UTF-8, which the library replaces otherwise.
    lines.append(vocabulary.decode(result[0].numpy()))
  assert all(lines) and lines == lines_of(evaluate, trained, folder)


def check_equal(params, others, rtol=0.0):
  assert jax.tree.structure(params) == jax.tree.structure(others)
  for one, other in zip(*map(jax.tree.leaves, (params, others)), strict=True):
    assert one.dtype == other.dtype
    np.testing.assert_allclose(one, other, rtol=rtol, atol=0)


@pytest.mark.long
@pytest.mark.parametrize('kind', ['trained', 'separate'])
def test_a_run_round_trips(export, evaluate, train, folder, request, tmp_path, kind):
  workdir, there, back = (
    request.getfixturevalue(kind),
    tmp_path / 'there',
    tmp_path / 'back',
  )
  old = load_run(workdir)
  export('safetensors', workdir, there)
  out = export('run', there, back)
  assert out.strip().endswith(f'python eval.py --workdir={back}')
  new = load_run(back)
  assert (old.config, old.checkpoint_steps) == (new.config, new.checkpoint_steps)
  check_equal(old.params, new.params)
  assert lines_of(evaluate, workdir, folder) == lines_of(evaluate, back, folder)
  export('safetensors', back, tmp_path / 'again')
  assert (tmp_path / 'again').read_bytes() == there.read_bytes()
  if kind == 'trained':  # Training can start from such weights, but not resume them.
    config = f'--config={folder}/tiny.py'
    assert (
      f'{back} has no optimizer state to resume from; start a new run with'
      in train.rejects(config, f'--workdir={back}')
    )
    status, _, err = train(
      config,
      f'--workdir={tmp_path}/next',
      '--config.train.steps=1',
      f'--config.train.init_from={back}',
      '--config.train.checkpoint_every=1',
    )
    assert status == 0, err
  # A folder for transformers has other numbers of layers and scales.
  export('huggingface', workdir, tmp_path / 'folder')
  out = export('run', tmp_path / 'folder', tmp_path / 'same')
  assert out.startswith('a run with only weights, of a folder for transformers; ')
  new = load_run(tmp_path / 'same')
  assert new.config.data.target_language == 'de' or kind == 'trained'
  assert new.config.model == dataclasses.replace(
    old.config.model, num_layers=1, decoder_layers=1
  )
  check_equal(old.params, new.params, 3e-7)
  assert len(lines_of(evaluate, tmp_path / 'same', folder)) == 2
  status, _, err = train(  # The settings of the model come from the run.
    f'--config={tmp_path}/same',
    f'--workdir={tmp_path}/tuned',
    f'--config.data.dir={folder}',
    '--config.data.source_language=en',
    '--config.data.target_language=de',
    f'--config.train.init_from={tmp_path}/same',
    '--config.train.steps=1',
  )
  assert (
    status == 0 and load_run(tmp_path / 'tuned').config.model == new.config.model
  ), err
  for run in (back, tmp_path / 'same'):
    for file in SEPARATE if kind == 'separate' else ['vocabulary.model']:
      assert (run / file).read_bytes() == (workdir / file).read_bytes()


@pytest.mark.long
def test_a_vocabulary_for_each_language_goes_along(
  export, evaluate, separate, folder, tmp_path
):
  trained, run, output = load_run(separate), tmp_path / 'run', tmp_path / 'model'
  # All vocabularies have the bytes, so this run prefers to write other pieces.
  table_ND = np.random.default_rng(1).normal(size=(310, 8)).astype(np.float32)
  table_ND[: BYTE_IDS.stop] *= 0.1
  save_run(
    run,
    trained.config,
    trained.vocabulary,
    trained.params | {'target_embedding': {'table': table_ND}},
    [7],
  )
  export('ctranslate2', run, output)
  lines = translated(output, folder / 'test.en', SEPARATE)
  assert lines == lines_of(evaluate, run, folder)
  assert all(len(line) > 5 and line.isprintable() for line in lines)


def test_a_run_is_loaded_intact_or_not_at_all(command, export, weights, tmp_path):
  path = tmp_path / 'changed'

  def change(group, key, value):
    content = safetensors_format.read(weights)
    content.config[group][key] = value
    safetensors_format.write(path, content)
    return content

  # A moving average is not computed again.
  content = change('train', 'ema_decay', 0.5)
  export('run', path, tmp_path / 'back')
  check_equal(content.params, load_run(tmp_path / 'back').params)
  for change_of, message in (
    (
      ('model', 'ff_dim', 13),
      'the parameter decoder_0.feed_forward.inner.bias should be (13,), as the config says; '
      'it is (11,)',
    ),
    (('model', 'heads', 3), 'there is no key config.model.heads'),
  ):
    change(*change_of)
    assert message in command.rejects(
      '--format=run', f'--weights={path}', f'--output={tmp_path}/none'
    )
  assert names(tmp_path) == ['back', 'changed']


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    ('', '--format is missing; pass one of ctranslate2, huggingface, safetensors, run'),
    ('--format=ctranslate2 --output=OUT', 'needs --workdir, and takes no --weights'),
    ('--format=run --weights=FILE --workdir=RUN --output=OUT', 'takes no --workdir'),
    ('--format=safetensors --workdir=RUN', '--output is missing'),
    (
      '--format=huggingface --workdir=RUN --output=OUT --quantization=int8',
      '--quantization is for --format=ctranslate2',
    ),
    (
      '--format=run --weights=FILE --output=OUT --average=2',
      '--checkpoint and --average are for',
    ),
    (
      '--format=ctranslate2 --workdir=RUN --output=RUN',
      'must be a new or empty folder',
    ),
    (
      '--format=safetensors --workdir=RUN --output=FILE',
      'must be a new or empty folder',
    ),
    (
      '--format=run --weights=RUN/config.json --output=OUT',
      'should be a safetensors file',
    ),
  ],
)
def test_user_errors_are_one_line_errors_messages_and_leave_no_files(
  command, trained, weights, folder, flags, message
):
  for name, path in {
    'RUN': trained,
    'FILE': weights,
    'OUT': folder / 'none' / 'x',
  }.items():
    flags = flags.replace(f'={name}', f'={path}')
  before = names(folder)
  assert message in command.rejects(*flags.split())
  assert not (folder / 'none' / 'x').exists() and set(names(folder)) <= {
    *before,
    'none',
  }


@pytest.mark.long
def test_a_missing_package_is_named(trained, folder, one_error):
  code = (
    "import sys; sys.modules['ctranslate2'] = None; "
    'from transformer.system import command_line; '
    'from transformer.tools.convert import __main__; command_line.run(__main__.main)'
  )
  done = subprocess.run(
    [
      sys.executable,
      '-c',
      code,
      '--format=ctranslate2',
      f'--workdir={trained}',
      f'--output={folder}/none',
    ],
    cwd=ROOT,
    env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 1
  assert 'needs ctranslate2, which is not installed; install it' in one_error(
    done.stderr
  )
