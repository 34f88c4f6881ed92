"""A MarianMT folder becomes a model of this project by the names of its pieces, or is refused."""

import json
import shutil

import jax
import numpy as np
import pytest

from tests.tools.convert.marian_folders import (
  KINDS,
  description,
  known_text,
  pieces_of,
  weights,
  write_folder,
)
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.vocabulary.vocabularies import is_shared
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.tools.convert import tensor_file
from transformer.tools.convert.huggingface_format import WEIGHTS, dim_order
from transformer.tools.convert.huggingface_reading import read_model
from transformer.training.step import init_params

ORDER = np.argsort(dim_order(14))


@pytest.fixture(scope='module', params=KINDS)
def folder(request, tmp_path_factory):
  return write_folder(tmp_path_factory.mktemp('model'), **KINDS[request.param])


@pytest.fixture(scope='module')
def published(tmp_path_factory):
  return write_folder(tmp_path_factory.mktemp('model'))


def ids_of(folder, name='vocab.json'):
  return json.loads((folder / name).read_text('utf-8'))


def test_every_piece_has_its_row_and_its_bias(folder):
  config, vocabulary, params = read_model(folder)
  tensors = tensor_file.read(folder / WEIGHTS)[1]
  separate = (folder / 'target_vocab.json').exists()
  equal = (folder / 'source.spm').read_bytes() == (folder / 'target.spm').read_bytes()
  assert is_shared(vocabulary) == equal == config.model.share_embeddings
  assert config.data.shared_vocabulary == equal
  assert config.data.sizes['vocabulary'] == vocabulary.target.size
  for side, name, part in (('source', 'vocab.json', 'encoder'),
                           ('target', 'target_vocab.json' if separate else 'vocab.json',
                            'decoder')):
    ids, each = ids_of(folder, name), getattr(vocabulary, side)
    theirs = tensors.get('model.shared.weight', tensors.get(f'model.{part}.embed_tokens.weight'))
    if equal and side == 'source':
      continue
    table = params[f'{side}_embedding']['table']
    assert table.shape == (each.size, 14)
    for token in range(each.size):
      piece = {PAD_ID: '<pad>', BOS_ID: '<pad>'}.get(token, each.piece(token))
      bare = piece.removeprefix('▁') if '<<' in piece else piece
      row = ids.get(bare, ids['<unk>'])
      np.testing.assert_array_equal(table[token], theirs[row][ORDER], err_msg=piece)
      if side == 'target':
        wanted = tensors['final_logits_bias'][0, row]
        if token in (PAD_ID, BOS_ID):
          wanted = -1000
        elif bare not in ids:
          wanted = wanted - 40
        assert params['output_bias'][token] == np.float32(wanted), piece
    if side == 'target':  # No piece of the table is lost.
      known = {each.piece(token) for token in range(each.size)}
      assert {piece for piece in ids if piece not in known and f'▁{piece}' not in known} == set()
  assert not params['target_embedding']['table'][[PAD_ID, BOS_ID]].any()
  pieces = pieces_of((folder / 'target.spm').read_bytes())
  assert any(piece not in ids_of(folder) for piece in pieces) or separate


def test_the_settings_are_those_of_the_folder(folder):
  config, vocabulary, params = read_model(folder)
  model = config.model
  assert (model.activation, model.attention_bias, model.output_bias, model.positions) == (
      'silu', 'all', True, 'sinusoidal')
  assert (config.data.source_language, config.data.target_language) == ('en', 'fr')
  assert (config.data.max_length, config.decode.beam_size) == (64, 6)
  own = Transformer(model, vocabulary.target.size, vocabulary.source.size)
  wanted = jax.eval_shape(lambda: init_params(own, 0))
  assert jax.tree.map(lambda leaf: leaf.shape, params) == jax.tree.map(
      lambda leaf: leaf.shape, wanted)


@pytest.mark.parametrize('kind', ['unigram', 'bpe'])
def test_text_comes_back_and_has_no_unknown_token(tmp_path, kind):
  codes = ('>>fra<<', '>>deu<<')
  folder = write_folder(tmp_path, codes=codes, kind=kind)
  vocabulary = read_model(folder).vocabulary
  sources, targets = known_text(folder)
  for line in [*(f'>>fra<< {line}' for line in sources), *sources, '  two  ﬁ ежедневно>>deu<<x']:
    ids = vocabulary.source.encode(line)
    assert vocabulary.source.decode(ids) == line
    assert not {PAD_ID, BOS_ID, EOS_ID, UNK_ID} & set(ids)
  assert vocabulary.source.piece(vocabulary.source.encode('>>fra<< a man')[0]) == '▁>>fra<<'
  known = set(ids_of(folder)) | set(pieces_of((folder / 'target.spm').read_bytes()))
  for line in targets:
    assert all(vocabulary.target.piece(token) in known for token in vocabulary.target.encode(line))


@pytest.mark.parametrize(('changes', 'fact'), [
    ({'normalize_embedding': True}, 'normalize_embedding=True, and .* can hold only False'),
    ({'normalize_before': True}, 'normalize_before=True'),
    ({'add_final_layer_norm': True}, 'add_final_layer_norm=True'),
    ({'static_position_embeddings': False}, 'static_position_embeddings=False'),
    ({'scale_embedding': None}, 'scale_embedding=None, and .* can hold only True'),
    ({'decoder_attention_heads': 1}, 'encoder_attention_heads=2 and decoder_attention_heads=1'),
    ({'activation_function': 'gelu_new'}, 'activation_function=gelu_new; this project can hold'),
    ({'eos_token_id': 3}, 'should have the id of </s> as eos_token_id, 0; it has 3'),
    ({'bad_words_ids': [[3, 4]]}, r'bad_words_ids=\[\[3, 4\]\]; .* single tokens alone'),
    ({'vocab_size': 30}, 'source has 30 rows by config.json, and a piece has row'),
    ({'pad_token_id': None}, 'it lacks pad_token_id')])
def test_what_cannot_be_held_is_refused_by_name(published, tmp_path, changes, fact):
  folder = shutil.copytree(published, tmp_path / 'model')
  about = json.loads((folder / 'config.json').read_text('utf-8')) | changes
  about = {name: value for name, value in about.items() if value is not None}
  (folder / 'config.json').write_text(json.dumps(about), 'utf-8')
  refuse(folder, fact)


def refuse(folder, fact):
  with pytest.raises(UserError, match=fact) as caught:
    read_model(folder)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize(('name', 'content', 'fact'), [
    ('source.spm', None, 'should hold source.spm; it holds config.json'),
    ('target.spm', None, 'should hold target.spm'),
    ('vocab.json', None, 'should hold vocab.json'),
    (WEIGHTS, None, 'should hold its weights as model.safetensors; .*pickles'),
    ('target.spm', b'\x01', 'target.spm should hold a SentencePiece model'),
    ('vocab.json', b'{', 'vocab.json should hold JSON; it cannot be read'),
    ('vocab.json', b'[]', 'vocab.json should hold a JSON object with the row of each piece'),
    ('vocab.json', b'{"a": -1}', 'vocab.json should hold a JSON object with the row'),
    ('vocab.json', b'{"a": 0}', 'vocab.json should have a row for </s> and <unk>')])
def test_a_file_that_is_missing_or_damaged_is_named(published, tmp_path, name, content, fact):
  folder = shutil.copytree(published, tmp_path / 'model')
  (folder / name).unlink()
  if content is not None:
    (folder / name).write_bytes(content)
  refuse(folder, fact)


def test_pickles_are_refused_by_name(published, tmp_path):
  folder = shutil.copytree(published, tmp_path / 'model')
  (folder / WEIGHTS).rename(folder / 'pytorch_model.bin')
  refuse(folder, r'it holds .*pytorch_model\.bin.*which are not read')


def test_a_table_may_have_the_name_of_any_part_that_shares_it(published, tmp_path):
  wanted = read_model(published).params
  for name in ('lm_head', 'model.decoder.embed_tokens', 'model.encoder.embed_tokens'):
    folder = shutil.copytree(published, tmp_path / name)
    tensors = tensor_file.read(folder / WEIGHTS)[1]
    tensors[f'{name}.weight'] = tensors.pop('model.shared.weight')
    tensor_file.write(folder / WEIGHTS, tensors, {'format': 'pt'})
    np.testing.assert_array_equal(read_model(folder).params['target_embedding']['table'],
                                  wanted['target_embedding']['table'])


def test_positions_of_a_folder_are_sinusoids_or_learned(published, tmp_path):
  folder = shutil.copytree(published, tmp_path / 'model')
  tensors = tensor_file.read(folder / WEIGHTS)[1]
  angles = np.arange(512)[:, None] / 10_000 ** (np.arange(0, 14, 2) / 14)
  sinusoids = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float16)
  for table, kind in ((sinusoids, 'sinusoidal'), (sinusoids[::-1], 'learned')):
    tensor_file.write(folder / WEIGHTS,
                      tensors | {'model.decoder.embed_positions.weight': table}, {'format': 'pt'})
    assert read_model(folder).config.model.positions == kind
  tensor_file.write(folder / WEIGHTS, tensors | {
      'model.decoder.embed_positions.weight': sinusoids[:, :13]}, {'format': 'pt'})
  refuse(folder, r'should hold positions of 14 dims, .* it holds \[512, 13\]')


def test_a_bias_that_is_too_short_is_refused(published, tmp_path):
  folder = shutil.copytree(published, tmp_path / 'model')
  tensors = tensor_file.read(folder / WEIGHTS)[1]
  tensors['final_logits_bias'] = tensors['final_logits_bias'][:, :7]
  tensor_file.write(folder / WEIGHTS, tensors, {'format': 'pt'})
  refuse(folder, 'final_logits_bias in .* it has 7, and a piece has row')


def test_a_padding_token_that_begins_is_never_generated_either(published, tmp_path):
  folder = shutil.copytree(published, tmp_path / 'model')
  about = json.loads((folder / 'config.json').read_text('utf-8'))
  (folder / 'config.json').write_text(json.dumps(about | {'bad_words_ids': None}), 'utf-8')
  np.testing.assert_array_equal(read_model(folder).params['output_bias'],
                                read_model(published).params['output_bias'])


def test_half_precision_and_older_settings_are_read(published, tmp_path):
  folder = shutil.copytree(published, tmp_path / 'model')
  sizes = (len(ids_of(published)),) * 2
  half = {name: each.astype(np.float16) for name, each in weights(sizes).items()}
  tensor_file.write(folder / WEIGHTS, half, {'format': 'pt'})
  assert 'tie_word_embeddings' not in description(sizes)
  params = read_model(folder).params
  assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}
