"""Pieces are sampled as SentencePiece samples them, each only by the sentence and its key."""

import collections
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from tests.data.vocabulary.test_kinds import KINDS, LINES, SIZE, TEXT
from transformer.data.batches.shuffling import mix_bits
from transformer.data.config import DataConfig
from transformer.data.encoding import Sentences
from transformer.data.vocabulary.vocabularies import SeparateVocabularies
from transformer.data.vocabulary.vocabulary import BYTE_IDS, SPACE, Vocabulary
from transformer.errors import UserError
from transformer.tools.subwords import bpe_dropout, sample_segmentations

ROOT = Path(__file__).parents[2]
# A function, its number, and a kind of vocabulary.
CASES = [
  (bpe_dropout, 0.3, 'symbols'),
  (bpe_dropout, 0.3, 'symbols with their space'),
  (bpe_dropout, 0.3, 'folded symbols'),
  (bpe_dropout, 0.3, 'digits'),
  (sample_segmentations, 0.1, 'all'),
]


def learned(kind) -> Vocabulary:
  return Vocabulary.train(TEXT, SIZE, config=DataConfig(**KINDS[kind]))


@pytest.fixture(scope='module', params=CASES, ids=lambda case: f'{case[1]} {case[2]}')
def case(request):
  function, number, kind = request.param
  return function, number, learned(kind)


def segment(function, number, vocabulary, lines, side=0, order=slice(None)):
  keys = mix_bits(np.arange(len(lines), dtype=np.uint64))[order]
  sentences = Sentences.from_lists_with_eos(vocabulary.encode_batch(lines))
  sentences = Sentences.from_lists(
    sentences[number] for number in np.arange(len(lines))[order]
  )
  both = np.stack([~keys, ~keys])  # The pieces of the other side do not count.
  both[side] = keys
  drawn = function(None, vocabulary, number)(sentences, sentences, both)[side]
  return [drawn[number].tolist() for number in range(len(drawn))]


def test_every_segmentation_decodes_to_the_line_and_depends_only_on_its_key(case):
  vocabulary = case[-1]
  lines = LINES * 3 + TEXT
  drawn = segment(*case, lines)
  plain = vocabulary.encode_batch(lines)
  assert [vocabulary.decode(ids) for ids in drawn] == list(
    map(vocabulary.round_trip, lines)
  )
  differ = sum(ids[:-1] != whole for ids, whole in zip(drawn, plain, strict=True))
  assert differ > len(lines) / 5
  for symbol in vocabulary.user_defined_symbols.values():
    assert [ids.count(symbol) for ids in drawn] == [ids.count(symbol) for ids in plain]
  assert segment(*case, lines, side=1) == drawn
  assert segment(*case, lines, order=slice(None, None, -3)) == drawn[::-3]


def test_another_process_samples_the_same_segmentations(tmp_path):
  for function, number, kind in (CASES[0], CASES[-1]):
    learned(kind).save(tmp_path / 'vocabulary.model')
    command = (
      'import sys; from tests.tools import test_subwords as here; '
      'print(here.segment(here.{}, {}, here.Vocabulary.load(sys.argv[1]), here.LINES))'
    )
    child = [sys.executable, '-c', command.format(function.__name__, number)]
    printed = subprocess.check_output(
      [*child, tmp_path / 'vocabulary.model'], cwd=ROOT, text=True
    )
    assert printed.splitlines()[-1] == str(
      segment(function, number, learned(kind), LINES)
    )


@pytest.mark.parametrize(
  ('function', 'number', 'kind', 'text'),
  [
    (bpe_dropout, 0.3, 'usual', 'the women run and the men'),
    (sample_segmentations, 0.4, 'unigram', 'wet rocks'),
  ],
)
def test_segmentations_are_as_frequent_as_in_sentencepiece(
  function, number, kind, text
):
  vocabulary = learned(kind)
  draws = 3_000
  ours = collections.Counter(
    tuple(ids[:-1]) for ids in segment(function, number, vocabulary, [text] * draws)
  )
  processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model_bytes)
  theirs = collections.Counter(
    tuple(processor.encode(text, enable_sampling=True, alpha=number, nbest_size=-1))
    for _ in range(draws)
  )
  assert len(ours) >= 8
  for ids in ours | theirs:
    assert abs(ours[ids] - theirs[ids]) < 6 * np.sqrt(ours[ids] + theirs[ids]), ids


def test_unused_pieces_are_merged_and_split_again():
  model = learned('usual').proto()
  word = max(
    (piece.piece for piece in model.pieces if piece.type == piece.NORMAL), key=len
  )
  for piece in model.pieces:
    if piece.type == piece.NORMAL and 1 < len(piece.piece) < len(word):
      piece.type = piece.UNUSED
  pruned = Vocabulary(model.SerializeToString())
  processor = sentencepiece.SentencePieceProcessor(model_proto=pruned.model_bytes)
  texts = [word, word[:-1], f'{word} {word[1:]}']
  sampled = segment(
    bpe_dropout, 1e-9, pruned, [text.replace(SPACE, '') for text in texts]
  )
  for text, ids in zip(texts, sampled, strict=True):
    assert ids[:-1] == processor.encode(text.replace(SPACE, ''))
  assert model.pieces[sampled[0][0]].piece == word


def test_without_merges_all_pieces_are_characters_or_bytes():
  vocabulary = learned('usual')
  for ids in segment(bpe_dropout, 1.0, vocabulary, TEXT[4:8]):
    assert all(
      token < BYTE_IDS.stop or len(vocabulary.piece(token)) == 1 for token in ids
    )


def test_each_side_is_segmented_by_its_vocabulary():
  own = SeparateVocabularies(
    Vocabulary.train(TEXT[::2], 330), Vocabulary.train(TEXT[1::2], 310)
  )
  texts = TEXT[:8:2], TEXT[1:8:2]
  sides = [
    Sentences.from_lists_with_eos(vocabulary.encode_batch(lines))
    for vocabulary, lines in zip(own, texts, strict=True)
  ]
  keys = mix_bits(np.arange(8, dtype=np.uint64)).reshape(2, 4)
  drawn = bpe_dropout(None, own, 0.3)(*sides, keys)
  for vocabulary, lines, side in zip(own, texts, drawn, strict=True):
    assert [vocabulary.decode(side[number]) for number in range(4)] == lines


def test_a_vocabulary_that_cannot_sample_is_rejected():
  bpe = learned('usual')
  unigram = learned('unigram')
  for number in (0, -1, 1.1, float('nan')):
    with pytest.raises(UserError, match='must be above 0 and at most 1; got'):
      sample_segmentations(None, unigram, number)
    with pytest.raises(UserError, match='must be above 0 and at most 1; got'):
      bpe_dropout(None, bpe, number)
  with pytest.raises(UserError, match=r'kind bpe, use .*:bpe_dropout'):
    sample_segmentations(None, bpe, 0.1)
  with pytest.raises(UserError, match=r'kind unigram, use .*:sample_segmentations'):
    bpe_dropout(None, SeparateVocabularies(bpe, unigram), 0.1)


@pytest.mark.long
def test_a_vocabulary_of_another_kind_is_rejected_by_a_check(train, folder, tmp_path):
  assert 'requires a vocabulary of the kind unigram' in train.rejects_alike(
    f'--config={folder}/tiny.py',
    f'--workdir={tmp_path}/run',
    "--config.data.augmentations=(('transformer.tools.subwords:sample_segmentations', 0.1),)",
  )
