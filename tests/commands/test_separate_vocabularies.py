"""All commands know a run that has a vocabulary for each language."""

import dataclasses
import shutil

import ctranslate2
import jax
import numpy as np
import pytest
import sentencepiece

from tests.running_commands import ENGLISH, GERMAN
from tests.tools.attend.test_attend import sentences_of
from transformer.data.vocabulary import BYTE_IDS, Vocabulary
from transformer.runs.loading import load_run, save_run

SIZES = {'source': 290, 'target': 310}
FLAGS = ['--config.data.shared_vocabulary=False', '--config.model.share_embeddings=False',
         '--config.data.vocabulary_size=310', '--config.data.source_vocabulary_size=290']
FILES = ['vocabulary.source.model', 'vocabulary.target.model']


@pytest.fixture(scope='module')
def run(train, folder):
  workdir = folder / 'separate'
  status, out, err = train(f'--config={folder}/tiny.py', f'--workdir={workdir}', *FLAGS)
  assert status == 0 and out == '', err
  assert 'training a source vocabulary of 290 pieces on 12 of 12 pairs' in err
  assert 'training a vocabulary of 310 pieces on 12 of 12 pairs' in err
  return workdir


@pytest.fixture(scope='module')
def export(start_command):
  yield from start_command('transformer.tools.convert.__main__')


@pytest.fixture(scope='module')
def attend(start_command):
  yield from start_command('transformer.tools.attend.__main__')


def names(folder):
  return sorted(path.name for path in folder.iterdir() if 'vocabulary' in path.name)


def test_the_run_keeps_both_and_its_tables_have_their_sizes(run):
  assert names(run) == FILES
  loaded = load_run(run)
  for side, lines, size in (('source', ENGLISH, 290), ('target', GERMAN, 310)):
    vocabulary = getattr(loaded.vocabulary, side)
    assert vocabulary.model_bytes == Vocabulary.train(lines * 3, size).model_bytes
    assert loaded.params[f'{side}_embedding']['table'].shape == (size, 8)


def test_training_goes_on_with_them_and_not_without(train, run, folder, tmp_path):
  copy = shutil.copytree(run, tmp_path / 'run')
  config = [f'--config={folder}/tiny.py', f'--workdir={copy}', *FLAGS]
  assert 'data.shared_vocabulary' in train.refuses(*config[:2], *FLAGS[1:3])
  status, _, err = train(*config, '--config.train.steps=3')
  assert status == 0 and 'vocabulary of' not in err, err
  target = copy / 'vocabulary.target.model'
  (copy / 'vocabulary.source.model').rename(target)
  (copy / 'vocabulary.source.model').write_bytes((run / 'vocabulary.target.model').read_bytes())
  assert 'is damaged, or is not the one' in train.refuses(*config, '--config.train.steps=4')


@pytest.mark.long
def test_another_run_starts_from_it_if_it_has_the_same(train, run, folder, tmp_path):
  config = [f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run']
  origin = f'--config.train.init_from={run}'
  status, _, err = train(*config, *FLAGS, origin)
  assert status == 0, err
  for name in FILES:
    assert (tmp_path / 'run' / name).read_bytes() == (run / name).read_bytes()
  for flags, fact in (
      ([origin, FLAGS[1]], 'set --config.data.shared_vocabulary=False; got True'),
      ([origin, *FLAGS[:3], '--config.data.source_vocabulary_size=289'],
       'set --config.data.source_vocabulary_size to 290, or to more to add pieces; got 289'),
      ([origin, *FLAGS[:2], '--config.data.vocabulary_size=309', FLAGS[3]],
       'set --config.data.vocabulary_size to 310, or to more to add pieces; got 309')):
    refused = train.refuses(*config[:1], f'--workdir={tmp_path}/none', *flags)
    assert fact in refused
  assert not (tmp_path / 'none').exists()


@pytest.mark.long
def test_it_translates_scores_and_aligns_and_shows_its_attention(evaluate, attend, run, folder,
                                                                 tmp_path):
  source = f'--source={folder}/test.en'
  status, out, err = evaluate(f'--workdir={run}', source, f'--alignments={tmp_path}/links')
  assert status == 0 and out.count('\n') == 2, err
  status, scores, err = evaluate(f'--workdir={run}', source, f'--reference={folder}/test.de',
                                 '--score')
  assert status == 0 and len(scores.splitlines()) == 2, err
  status, page, err = attend(f'--workdir={run}', source, f'--translation={folder}/test.de',
                             '--output=-')
  assert status == 0, err
  loaded = load_run(run)
  for side, name in (('source', 'test.en'), ('target', 'test.de')):
    vocabulary = getattr(loaded.vocabulary, side)
    line = (folder / name).read_text('utf-8').splitlines()[0]
    pieces = [vocabulary.piece(token) for token in vocabulary.encode(line)]
    assert sentences_of(page)['sentences'][0][side][:-1] == pieces


def test_an_ensemble_needs_the_same_vocabularies(evaluate, run, trained, folder):
  refused = evaluate.refuses(f'--workdir={run}', f'--ensemble={trained}',
                             f'--source={folder}/test.en')
  assert 'must have the same vocabulary' in refused


def test_weights_come_back_as_a_run(export, run, folder, tmp_path):
  path, again = tmp_path / 'run.safetensors', tmp_path / 'again'
  assert export('--format=safetensors', f'--workdir={run}', f'--output={path}')[0] == 0
  status, _, err = export('--format=run', f'--weights={path}', f'--output={again}')
  assert status == 0, err
  for name in FILES:
    assert (again / name).read_bytes() == (run / name).read_bytes()
  assert load_run(again).vocabulary.source.size == 290


def test_a_hugging_face_folder_comes_back_as_a_run(export, run, tmp_path):
  there, back = tmp_path / 'there', tmp_path / 'back'
  status, _, err = export('--format=huggingface', f'--workdir={run}', f'--output={there}')
  assert status == 0, err
  assert {'source.spm', 'target.spm', 'vocab.json', 'target_vocab.json'} < {
      path.name for path in there.iterdir()}
  status, _, err = export('--format=run', f'--weights={there}', f'--output={back}')
  assert status == 0, err
  for name in FILES:
    assert (back / name).read_bytes() == (run / name).read_bytes()
  old, new = load_run(run), load_run(back)
  assert new.config.data.target_language == 'de' and new.config.model == dataclasses.replace(
      old.config.model, encoder_layers=1, decoder_layers=1)
  for one, other in zip(*map(jax.tree.leaves, (old.params, new.params)), strict=True):
    np.testing.assert_allclose(one, other, rtol=3e-7)


def test_ctranslate2_translates_from_one_to_the_other(export, evaluate, run, folder, tmp_path):
  # All vocabularies have the bytes, so this run prefers to write other pieces.
  trained, run, output = load_run(run), tmp_path / 'run', tmp_path / 'model'
  table_ND = np.random.default_rng(1).normal(size=(SIZES['target'], 8)).astype(np.float32)
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
