"""A run that has a vocabulary for each language is converted, and comes back."""

import dataclasses

import ctranslate2
import jax
import numpy as np
import pytest
import sentencepiece

from transformer.data.vocabulary.vocabulary import BYTE_IDS
from transformer.runs.loading import load_run, save_run

FILES = ['vocabulary.source.model', 'vocabulary.target.model']


@pytest.fixture(scope='module')
def export(start_command):
  yield from start_command('transformer.tools.convert.__main__')


def test_weights_come_back_as_a_run(export, separate, folder, tmp_path):
  path, again = tmp_path / 'run.safetensors', tmp_path / 'again'
  assert export('--format=safetensors', f'--workdir={separate}', f'--output={path}')[0] == 0
  status, _, err = export('--format=run', f'--weights={path}', f'--output={again}')
  assert status == 0, err
  for name in FILES:
    assert (again / name).read_bytes() == (separate / name).read_bytes()
  assert load_run(again).vocabulary.source.size == 290


def test_a_hugging_face_folder_comes_back_as_a_run(export, separate, tmp_path):
  there, back = tmp_path / 'there', tmp_path / 'back'
  status, _, err = export('--format=huggingface', f'--workdir={separate}', f'--output={there}')
  assert status == 0, err
  assert {'source.spm', 'target.spm', 'vocab.json', 'target_vocab.json'} < {
      path.name for path in there.iterdir()}
  status, _, err = export('--format=run', f'--weights={there}', f'--output={back}')
  assert status == 0, err
  for name in FILES:
    assert (back / name).read_bytes() == (separate / name).read_bytes()
  old, new = load_run(separate), load_run(back)
  assert new.config.data.target_language == 'de' and new.config.model == dataclasses.replace(
      old.config.model, encoder_layers=1, decoder_layers=1)
  for one, other in zip(*map(jax.tree.leaves, (old.params, new.params)), strict=True):
    np.testing.assert_allclose(one, other, rtol=3e-7)


def test_ctranslate2_translates_from_one_to_the_other(export, evaluate, separate, folder, tmp_path):
  # All vocabularies have the bytes, so this run prefers to write other pieces.
  trained, run, output = load_run(separate), tmp_path / 'run', tmp_path / 'model'
  table_ND = np.random.default_rng(1).normal(size=(310, 8)).astype(np.float32)
  table_ND[:BYTE_IDS.stop] *= 0.1
  save_run(run, trained.config, trained.vocabulary,
           trained.params | {'target_embedding': {'table': table_ND}}, [7])
  status, _, err = export('--format=ctranslate2', f'--workdir={run}', f'--output={output}')
  assert status == 0, err
  source, target = (sentencepiece.SentencePieceProcessor(model_file=str(output / name))
                    for name in FILES)
  translator = ctranslate2.Translator(str(output))
  found = []
  for line in (folder / 'test.en').read_text('utf-8').splitlines():
    pieces = source.encode(line, out_type=str)
    result, = translator.translate_batch([pieces], beam_size=1, min_decoding_length=0,
                                         max_decoding_length=len(pieces) + 1 + 3)
    found.append(target.decode(result.hypotheses[0]))
  status, out, err = evaluate(f'--workdir={run}', f'--source={folder}/test.en', '--beam_size=1')
  assert status == 0 and found == out.split('\n')[:-1], err
  assert all(len(line) > 5 and line.isprintable() for line in found)
