"""Merges are those of SentencePiece, and a key decides which of them are left out."""

import collections

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.batch import EOS_ID
from transformer.data.batches import bpe_dropout
from transformer.data.batches.bpe_dropout import Merges, make_bpe_dropout
from transformer.data.encoding import Sentences
from transformer.data.vocabulary.vocabulary import BYTE_IDS, Vocabulary

ESCAPE = '\U000f2581'
SENTENCES = [
  'a man in a red shirt climbs a tall rock face .',
  'ein mann in einem roten hemd klettert auf einen felsen .',
  'the dog runs through the wet grass  with a stick\tin its mouth',
  'der hund läuft mit einem stock im maul durch das nasse gras',
  'banana bananas an anna nanana aaa aaaa aaaaaaa abababab',
  f'\u2581\u2581a\u2585{ESCAPE} 我们在这里 我们在 在这里 é e\u0301',
] * 3
HOSTILE = [
  '',
  ' ',
  '    ',
  'a',
  ' a',
  'a ',
  'a' * 200,
  'ab' * 90,
  'nan' * 90,
  'a man ' * 30,
  '\x00',
  '\u2581\u2581 \u2581a\u2581',
  '\u2585',
  ESCAPE,
  f'{ESCAPE}1',
  'ж',
  '👩‍👩‍👧 a 🇩🇪b',
  '</s> a',
  '<unk>',
  '<0x41>',
  '\u200fשלום\u200e',
  '我们在这里我们',
  'e\u0301é',
  ' ⁇ ',
  '\t\ta\u2028',
]


@pytest.fixture(scope='module')
def vocabulary() -> Vocabulary:
  return Vocabulary.train(SENTENCES, 400)


@pytest.fixture(scope='module')
def merges(vocabulary) -> Merges:
  return Merges(vocabulary)


def encoded(vocabulary, texts) -> Sentences:
  return Sentences.ended(vocabulary.encode_batch(texts))


def keys_for(count, seed=0):
  return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


def lists(sentences):
  return [sentences[i].tolist() for i in range(len(sentences))]


def test_with_every_merge_it_is_what_sentencepiece_encodes(vocabulary, merges):
  texts = SENTENCES + HOSTILE
  plain = encoded(vocabulary, texts)
  assert lists(merges.cut(plain, keys_for(len(texts)), 0.0)) == lists(plain)


# Letters of few words make many overlapping merges; the other characters have no piece.
@given(
  st.lists(
    st.text(st.sampled_from('aaabnmnsi rdteh\u2581我们在é')) | st.text(),
    min_size=1,
    max_size=5,
  )
)
@settings(max_examples=25, deadline=None)
def test_with_every_merge_any_text_is_what_sentencepiece_encodes(
  vocabulary, merges, texts
):
  plain = encoded(vocabulary, texts)
  assert lists(merges.cut(plain, keys_for(len(texts)), 0.0)) == lists(plain)


@pytest.mark.parametrize('rate', [0.1, 1.0])
def test_every_cut_says_the_same(vocabulary, merges, rate):
  texts = SENTENCES + HOSTILE
  plain = encoded(vocabulary, texts)
  cut = merges.cut(plain, keys_for(len(texts)), rate)
  assert [vocabulary.decode(ids) for ids in lists(cut)] == texts
  assert all(ids[-1] == EOS_ID and EOS_ID not in ids[:-1] for ids in lists(cut))
  assert len(cut.tokens) > 1.05 * len(plain.tokens)
  if rate == 1.0:
    assert all(
      token < BYTE_IDS.stop or len(vocabulary.piece(token)) == 1 for token in cut.tokens
    )


@pytest.mark.parametrize(('text', 'rate'), [('bananas', 0.1), ('aaaaaa', 0.5)])
def test_cuts_are_as_frequent_as_those_of_sentencepiece(vocabulary, merges, text, rate):
  """Each segmentation of a text is as frequent in both, within six standard deviations."""
  draws = 3_000
  plain = encoded(vocabulary, [text])
  many = Sentences(
    plain.tokens, plain.starts.repeat(draws), plain.lengths.repeat(draws)
  )
  ours = collections.Counter(
    tuple(ids[:-1]) for ids in lists(merges.cut(many, keys_for(draws), rate))
  )
  processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model_bytes)
  theirs = collections.Counter(
    tuple(processor.encode(text, enable_sampling=True, alpha=rate, nbest_size=-1))
    for _ in range(draws)
  )
  assert len(ours) >= 8
  for ids in ours | theirs:
    assert abs(ours[ids] - theirs[ids]) < 6 * np.sqrt(ours[ids] + theirs[ids]), ids


def test_a_cut_does_not_depend_on_other_sentences_or_order(
  vocabulary, merges, monkeypatch
):
  texts = SENTENCES + HOSTILE
  plain, keys = encoded(vocabulary, texts), keys_for(len(texts))
  together = lists(merges.cut(plain, keys, 0.3))
  for i in range(0, len(texts), 9):
    alone = encoded(vocabulary, [texts[i]])
    assert lists(merges.cut(alone, keys[i : i + 1], 0.3)) == [together[i]]
  order = np.random.default_rng(1).permutation(len(texts))
  monkeypatch.setattr(bpe_dropout, '_CHUNK', 50)  # Few sentences a chunk.
  moved = Sentences(plain.tokens, plain.starts[order], plain.lengths[order])
  assert lists(merges.cut(moved, keys[order], 0.3)) == [together[i] for i in order]


def test_each_side_is_cut_by_its_own_keys(vocabulary):
  plain = encoded(vocabulary, SENTENCES)
  mine, others = keys_for(len(plain)), keys_for(len(plain), 1)
  of_source, of_target = make_bpe_dropout(vocabulary, 0.5)
  for side, vary in enumerate((of_source, of_target)):
    first, second, third = (
      vary(plain, plain, np.stack(keys))
      for keys in ((mine, mine), (others, mine), (mine, others))
    )
    same, different = (third, second) if side == 0 else (second, third)
    assert lists(first[side]) == lists(same[side]) != lists(different[side])
    assert all(
      lists(varied[1 - side]) == lists(plain) for varied in (first, second, third)
    )
