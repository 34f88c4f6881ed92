"""A MarianMT folder becomes a model of this project by the names of its pieces, or is rejected."""

import json

import chex
import jax
import numpy as np
import pytest

from tests.tools.convert.marian_folders import (
  CODES,
  KINDS,
  known_text,
  pieces_of,
  write_folder,
)
from tests.tools.convert.random_models import SHAPE, change_json, opinionated, rejects
from transformer.config import Config
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.config import DataConfig
from transformer.data.vocabulary.vocabularies import SeparateVocabularies, is_shared
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.config import DecodeConfig
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.tools.convert.huggingface_format import write_model
from transformer.tools.convert.huggingface_import import read_model
from transformer.tools.convert.huggingface_tensors import WEIGHTS, dim_order
from transformer.tools.convert.safetensors_format import read_tensors, write_tensors
from transformer.training.config import TrainConfig

ORDER = np.argsort(dim_order(14))


@pytest.fixture(scope='module', params=KINDS)
def folder(request, tmp_path_factory):
  return write_folder(tmp_path_factory.mktemp('model'), **KINDS[request.param])


@pytest.fixture
def published(tmp_path):
  return write_folder(tmp_path)


def ids_of(folder, name='vocab.json'):
  return json.loads((folder / name).read_text('utf-8'))


def test_every_piece_has_its_row_and_bias_and_settings_match_the_folder(
  folder,
):
  config, vocabulary, params = read_model(folder)
  tensors = read_tensors(folder / WEIGHTS)[1]
  separate = (folder / 'target_vocab.json').exists()
  equal = (folder / 'source.spm').read_bytes() == (folder / 'target.spm').read_bytes()
  assert is_shared(vocabulary) == equal == config.model.share_embeddings
  assert config.data.shared_vocabulary == equal
  assert config.data.vocabulary_sizes['vocabulary'] == vocabulary.target.size
  for side, name, part in (
    ('source', 'vocab.json', 'encoder'),
    ('target', 'target_vocab.json' if separate else 'vocab.json', 'decoder'),
  ):
    ids, own = ids_of(folder, name), getattr(vocabulary, side)
    theirs = tensors.get(
      'model.shared.weight', tensors.get(f'model.{part}.embed_tokens.weight')
    )
    if equal and side == 'source':
      continue
    table = params[f'{side}_embedding']['table']
    assert table.shape == (own.size, 14)
    for token in range(own.size):
      piece = {PAD_ID: '<pad>', BOS_ID: '<pad>'}.get(token, own.piece(token))
      bare = piece.removeprefix('▁') if '<<' in piece else piece
      row = ids.get(bare, ids['<unk>'])
      np.testing.assert_array_equal(table[token], theirs[row][ORDER], err_msg=piece)
      if side == 'target':
        wanted = tensors['final_logits_bias'][0, row] - (0 if bare in ids else 40)
        assert params['output_bias'][token] == np.float32(
          -1000 if token in (PAD_ID, BOS_ID) else wanted
        ), piece
    if side == 'target':  # No piece of the table is lost.
      known = {own.piece(token) for token in range(own.size)}
      assert {
        piece for piece in ids if piece not in known and f'▁{piece}' not in known
      } == set()

  model = config.model
  assert (
    model.activation,
    model.attention_bias,
    model.output_bias,
    model.positions,
  ) == (
    'silu',
    'all',
    True,
    'sinusoidal',
  )
  assert (config.data.source_language, config.data.target_language) == ('en', 'fr')
  assert (config.data.max_length, config.decode.beam_size) == (64, 6)
  own = Transformer(model, vocabulary.target.size, vocabulary.source.size)
  wanted = jax.eval_shape(lambda: init_params(own, 0))
  assert jax.tree.map(np.shape, params) == jax.tree.map(lambda leaf: leaf.shape, wanted)


@pytest.mark.parametrize('kind', ['unigram', 'bpe'])
def test_text_round_trips_and_has_no_unknown_token(tmp_path, kind):
  folder = write_folder(tmp_path, codes=CODES, kind=kind)
  vocabulary = read_model(folder).vocabulary
  sources, targets = known_text(folder)
  for line in [
    *(f'>>fra<< {line}' for line in sources),
    *sources,
    '  two  ﬁ ежедневно>>deu<<x',
  ]:
    ids = vocabulary.source.encode(line)
    assert vocabulary.source.decode(ids) == line
    assert not {PAD_ID, BOS_ID, EOS_ID, UNK_ID} & set(ids)
  assert (
    vocabulary.source.piece(vocabulary.source.encode('>>fra<< a man')[0]) == '▁>>fra<<'
  )
  known = set(ids_of(folder)) | set(pieces_of((folder / 'target.spm').read_bytes()))
  for line in targets:
    assert all(
      vocabulary.target.piece(token) in known
      for token in vocabulary.target.encode(line)
    )


@pytest.mark.parametrize(
  ('changes', 'fact'),
  [
    ({'normalize_before': True}, 'normalize_before=True, and .* supports only False'),
    ({'scale_embedding': None}, 'scale_embedding=False, and .* supports only True'),
    (
      {'activation_function': 'tanh'},
      'activation_function=tanh, .* relu or gelu or silu or swish',
    ),
    ({'eos_token_id': 3}, 'should have the id of </s> as eos_token_id, 0; it has 3'),
    (
      {'bad_words_ids': [[3, 4]]},
      r'bad_words_ids=\[\[3, 4\]\]; .* only single tokens',
    ),
    ({'pad_token_id': None}, "should have an entry 'pad_token_id'"),
    (('source.spm', None), 'should hold source.spm'),
    (
      (WEIGHTS, None),
      'its weights as model.safetensors, .*pickles are not read',
    ),
    (('target.spm', b'\x01'), 'target.spm should hold a SentencePiece model'),
    (('vocab.json', b'{"a": 0}'), "vocab.json should have an entry '</s>'"),
  ],
)
def test_unsupported_or_missing_items_are_named(
  published, tmp_path_factory, changes, fact
):
  rejects(published, tmp_path_factory.mktemp('copy') / 'model', changes, fact)


def test_a_table_may_have_the_name_of_any_part_that_shares_it(published):
  tensors, wanted = read_tensors(published / WEIGHTS)[1], read_model(published).params
  table = tensors.pop('model.shared.weight')
  for name in ('lm_head', 'model.decoder.embed_tokens', 'model.encoder.embed_tokens'):
    write_tensors(
      published / WEIGHTS, tensors | {f'{name}.weight': table}, {'format': 'pt'}
    )
    np.testing.assert_array_equal(
      read_model(published).params['target_embedding']['table'],
      wanted['target_embedding']['table'],
    )


def test_half_precision_older_settings_and_a_padding_token_that_begins_are_read(
  published,
):
  wanted = read_model(published).params['output_bias']
  # It is never generated either.
  change_json(published / 'config.json', bad_words_ids=None)
  np.testing.assert_array_equal(read_model(published).params['output_bias'], wanted)
  half = {
    name: array.astype(np.float16)
    for name, array in read_tensors(published / WEIGHTS)[1].items()
  }
  write_tensors(published / WEIGHTS, half, {'format': 'pt'})
  assert 'tie_word_embeddings' not in ids_of(published, 'config.json')
  assert {leaf.dtype for leaf in jax.tree.leaves(read_model(published).params)} == {
    np.dtype(np.float32)
  }


def test_two_vocabularies_and_the_search_round_trip_each_on_its_side(tmp_path):
  sides = SeparateVocabularies(
    Vocabulary.train(['a man in a red shirt'] * 3, 273),
    Vocabulary.train(['ein mann in rotem hemd'] * 3, 277),
  )
  config = Config(
    DataConfig(
      source_language='en',
      target_language='de',
      shared_vocabulary=False,
      source_vocabulary_size=273,
      vocabulary_size=277,
      max_length=37,
    ),
    ModelConfig(**SHAPE, share_embeddings=False),
    train=TrainConfig(tokens_per_batch=370),
    decode=DecodeConfig(beam_size=3, alpha=0.7, max_extra_length=11),
  )
  params = opinionated(Transformer(config.model, 277, 273))
  write_model(tmp_path, config, params, sides)
  about = json.loads((tmp_path / 'config.json').read_bytes())
  assert (about['vocab_size'], about['decoder_vocab_size']) == (273, 277)
  search = json.loads((tmp_path / 'generation_config.json').read_bytes())
  assert (search['num_beams'], search['length_penalty'], search['max_length']) == (
    3,
    0.7,
    1 + 37 + 11,
  )
  back = read_model(tmp_path)
  chex.assert_trees_all_close(back.params, params, rtol=3e-7, atol=0)
  assert (
    back.config.data.source_language == 'en'
    and back.config.data.target_language == 'de'
  )
  for side in ('source', 'target'):
    line = 'a man ein mann'
    own, other = (getattr(both, side) for both in (sides, back.vocabulary))
    assert own.encode(line) == other.encode(line)
