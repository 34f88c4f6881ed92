"""Each kind of vocabulary keeps its promise, and the default one is unchanged."""

import io

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.config import NORMALIZATIONS, DataConfig
from transformer.data.corpora import Corpora
from transformer.data.vocabulary.building import build_vocabulary
from transformer.data.vocabulary.vocabulary import BYTE_IDS, Vocabulary
from transformer.errors import UserError

TEXT = [
  'In 2016, 2016 men of <Ort> climbed 100 rocks .',
  'Zwei Straßen in <Ort> , 2016 und 1000 .',
  'a man of $NUM$NUM years',
  '  ﬁne   ½ Ａpple ',
  'two women are sitting on the bench and talking .',
  'ein mann klettert einen felsen hinauf',
  'the dog runs through the wet grass with a stick',
  'zwei hunde laufen durch das gras',
] * 6
SYMBOLS = '<Ort>', '$NUM'
SIZE = 322
HOSTILE = [
  '',
  '  two  spaces ',
  ' ﬁ Ａ ½ \u2028',
  '▁ \x00 \u2585',
  'ежедневно',
  '</s> <pad> <unk>',
  '<0x41> <zz>',
  '\U000f25810',
]
KINDS = {
  'usual': {},
  'unigram': {'vocabulary_kind': 'unigram'},
  'digits': {'split_digits': True},
  'symbols': {'user_defined_symbols': SYMBOLS},
  'symbols with their space': {'user_defined_symbols': ('▁<Ort>', '$NUM')},
  **{name: {'normalization': name} for name in NORMALIZATIONS[1:]},
  'folded symbols': {'normalization': 'nmt_nfkc_cf', 'user_defined_symbols': SYMBOLS},
  'all': {
    'vocabulary_kind': 'unigram',
    'split_digits': True,
    'user_defined_symbols': SYMBOLS,
    'normalization': 'nfkc',
  },
}
LINES = [
  *TEXT[:4],
  *HOSTILE,
  '<Ort>',
  ' <Ort>  x<Ort>$NUM1',
  'É\u0300 Ⅷ ㎏ \u00a0\u200b\u00b4 ΑΣ İ',
]


def train(kind, size=SIZE, text=TEXT):
  return Vocabulary.train(text, size, config=DataConfig(**KINDS[kind]))


@pytest.fixture(scope='module')
def vocabularies():
  return {kind: train(kind) for kind in KINDS}


@pytest.fixture(params=KINDS)
def kind(request):
  return request.param


def pieces(vocabulary, line):
  return [vocabulary.piece(token) for token in vocabulary.encode(line)]


def test_the_usual_vocabulary_has_the_bytes_that_it_always_had(vocabularies):
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(TEXT),
    model_writer=model,
    model_type='bpe',
    vocab_size=SIZE,
    character_coverage=0.99999,
    byte_fallback=True,
    normalization_rule_name='identity',
    remove_extra_whitespaces=False,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    pad_piece='<pad>',
    max_sentence_length=2**30,
    hard_vocab_limit=True,
    minloglevel=2,
  )
  assert vocabularies['usual'].model_bytes == model.getvalue()


def test_text_is_normalized_once_and_round_trips(vocabularies, kind):
  vocabulary, normalization = (
    vocabularies[kind],
    KINDS[kind].get('normalization', 'identity'),
  )
  assert (vocabulary.size, vocabulary.normalization) == (SIZE, normalization)
  assert [vocabulary.piece(token) for token in range(5)] == [
    '<pad>',
    '<s>',
    '</s>',
    '<unk>',
    '<0x00>',
  ]
  assert vocabulary.piece(BYTE_IDS.stop - 1) == '<0xFF>'
  for line in LINES:
    ids = vocabulary.encode(line)
    assert not {PAD_ID, BOS_ID, EOS_ID, UNK_ID} & set(ids)
    assert vocabulary.round_trip(vocabulary.round_trip(line)) == vocabulary.round_trip(
      line
    )
    assert normalization != 'identity' or vocabulary.round_trip(line) == line
  wanted = {'identity': ' A  ﬁ ', 'nfkc': ' A  fi ', 'nfkc_cf': ' a  fi '}
  assert vocabulary.round_trip(' A  ﬁ ') == wanted[normalization.removeprefix('nmt_')]


@given(line=st.text(st.characters(exclude_categories=['Cs'], exclude_characters='\n')))
@settings(max_examples=30, deadline=None)
def test_any_line_is_normalized_once(vocabularies, line):
  for kind in ('unigram', 'symbols', 'symbols with their space', 'nmt_nfkc', 'all'):
    written = vocabularies[kind].round_trip(line)
    assert KINDS[kind].get('normalization') or written == line
    assert vocabularies[kind].round_trip(written) == written


def test_a_symbol_is_one_token_wherever_it_stands(vocabularies):
  for kind in ('symbols', 'folded symbols', 'all'):
    vocabulary = vocabularies[kind]
    assert vocabulary.user_defined_symbols.keys() == set(SYMBOLS)
    assert min(vocabulary.user_defined_symbols.values()) == BYTE_IDS.stop
    line = ' <Ort>  x<Ort>$NUM$NUM9$NUM'
    assert [piece for piece in pieces(vocabulary, line) if piece in SYMBOLS] == [
      '<Ort>',
      '<Ort>',
      '$NUM',
      '$NUM',
      '$NUM',
    ]
    assert vocabulary.round_trip(line) == line


def test_a_symbol_with_its_space_is_one_token_after_a_space_or_at_the_start(
  vocabularies,
):
  vocabulary = vocabularies['symbols with their space']
  line = '<Ort> x<Ort> <Ort>$NUM 1'
  symbols = [
    piece
    for piece in pieces(vocabulary, line)
    if piece in vocabulary.user_defined_symbols
  ]
  assert symbols == ['▁<Ort>', '▁<Ort>', '$NUM'] and vocabulary.round_trip(line) == line


def test_digits_are_separate_pieces_if_requested(vocabularies):
  assert '2016' in pieces(vocabularies['usual'], '1 2016')[-1]
  for kind in ('digits', 'all'):
    assert pieces(vocabularies[kind], '1 2016')[-4:] == ['2', '0', '1', '6']


def test_the_same_text_returns_the_same_bytes_and_a_model_is_used_unchanged(
  vocabularies, kind, tmp_path
):
  vocabulary, path = vocabularies[kind], tmp_path / 'own.model'
  assert train(kind).model_bytes == vocabulary.model_bytes
  vocabulary.save(path)
  assert Vocabulary.load(path).model_bytes == vocabulary.model_bytes
  for cut in range(1, len(vocabulary.model_bytes), 2003):
    with pytest.raises(UserError, match='corrupt'):
      Vocabulary(vocabulary.model_bytes[:-cut])


@pytest.mark.parametrize(
  ('kind', 'size', 'limit'),
  [
    ('unigram', 9000, 'at most'),
    ('unigram', 270, 'at least'),
    ('symbols', 270, 'at least'),
  ],
)
def test_a_size_that_does_not_suit_the_kind_says_the_nearest(kind, size, limit):
  with pytest.raises(
    UserError, match=rf'set --config.data.vocabulary_size to {limit} \d+$'
  ) as caught:
    train(kind, size)
  nearest = int(str(caught.value).split()[-1])
  assert train(kind, nearest).size == nearest


CORPORA = Corpora({'a': list(zip(TEXT[::2], TEXT[1::2], strict=True))}, {})


def make(size=SIZE, earlier=None, **changes):
  return build_vocabulary(DataConfig(vocabulary_size=size, **changes), CORPORA, earlier)


@pytest.mark.parametrize('kind', KINDS)
def test_the_settings_of_a_run_reach_its_vocabulary(vocabularies, kind):
  assert make(**KINDS[kind]).model_bytes == vocabularies[kind].model_bytes


def test_settings_that_contradict_a_given_vocabulary_are_rejected(
  vocabularies, tmp_path
):
  vocabularies['usual'].save(tmp_path / 'usual')
  file = {'vocabulary': str(tmp_path / 'usual')}
  for changes, earlier, advice in (
    (
      {**file, **KINDS['unigram']},
      None,
      r'data\.vocabulary; set .*\.vocabulary_kind=bpe; got u',
    ),
    (
      {**file, **KINDS['digits']},
      None,
      r'data\.vocabulary; set --config\.data\.split_digits=F',
    ),
    (
      KINDS['nfkc'],
      'usual',
      r'train\.init_from; set .*\.normalization=identity; got nfkc',
    ),
    (
      {},
      'nfkc',
      r'train\.init_from; set --config\.data\.normalization=nfkc; got identity',
    ),
    (file | KINDS['symbols'], None, f'vocabulary_size={SIZE + 2}; got {SIZE}'),
    (
      {'size': SIZE + 9},
      'usual',
      f'train.init_from; set .*_size={SIZE}; got {SIZE + 9}',
    ),
  ):
    with pytest.raises(UserError, match=advice):
      make(earlier=earlier and vocabularies[earlier], **changes)


def test_a_given_vocabulary_takes_symbols(vocabularies, tmp_path):
  vocabularies['nmt_nfkc'].save(tmp_path / 'given')
  given = {'vocabulary': str(tmp_path / 'given'), 'normalization': 'nmt_nfkc'}
  assert make(**given).model_bytes == vocabularies['nmt_nfkc'].model_bytes
  with pytest.raises(UserError, match=r'set .*\.normalization=nmt_nfkc; got identity'):
    make(vocabulary=given['vocabulary'])
  config = DataConfig(vocabulary_size=SIZE + 2, **given, user_defined_symbols=SYMBOLS)
  made = build_vocabulary(config, CORPORA)
  assert made.user_defined_symbols == {'<Ort>': SIZE, '$NUM': SIZE + 1}
  assert made.round_trip('ﬁ A<Ort>') == 'fi A<Ort>'


def test_new_symbols_extend_a_given_vocabulary_but_not_the_vocabulary_of_init_from(
  vocabularies, tmp_path
):
  earlier = vocabularies['nfkc']
  path = tmp_path / 'earlier.model'
  path.write_bytes(earlier.model_bytes)
  settings = {'user_defined_symbols': ('<neu>', 'ﬁ'), 'normalization': 'nfkc'}
  with pytest.raises(
    UserError, match=r'train\.init_from, which lacks .* data\.user_defined_symbols'
  ):
    make(SIZE + 2, earlier, **settings)
  grown = make(SIZE + 2, vocabulary=str(path), **settings)
  assert grown.user_defined_symbols == {'<neu>': SIZE, 'ﬁ': SIZE + 1}
  for line in TEXT[:2]:
    assert grown.round_trip(line) == line
