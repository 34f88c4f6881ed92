"""Cuts are drawn as SentencePiece draws them, each by the sentence and its key alone."""

import collections

import numpy as np
import pytest
import sentencepiece

from tests.data.vocabulary.test_kinds import LINES, SIZE, SYMBOLS, TEXT
from transformer.data.batches.shuffling import mix
from transformer.data.config import DataConfig
from transformer.data.encoding import Sentences
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.tools.subwords import sample_cuts


@pytest.fixture(scope='module')
def vocabulary():
  return Vocabulary.train(
    TEXT, SIZE, config=DataConfig(vocabulary_kind='unigram', symbols=SYMBOLS)
  )


def cut(vocabulary, lines, alpha, side=0, order=slice(None)):
  keys = mix(np.arange(len(lines), dtype=np.uint64))[order]
  sentences = Sentences.ended(vocabulary.encode_batch(lines))
  sentences = Sentences.join(
    sentences[number] for number in np.arange(len(lines))[order]
  )
  both = np.stack([~keys, ~keys])  # Those of the other side do not count.
  both[side] = keys
  drawn = sample_cuts(None, vocabulary, alpha)(sentences, sentences, both)[side]
  return [drawn[number].tolist() for number in range(len(drawn))]


def test_every_cut_says_the_same_and_depends_on_its_key_alone(vocabulary):
  lines = LINES * 3 + TEXT
  drawn = cut(vocabulary, lines, 0.1)
  plain = vocabulary.encode_batch(lines)
  assert [vocabulary.decode(ids) for ids in drawn] == lines
  assert (
    sum(ids[:-1] != whole for ids, whole in zip(drawn, plain, strict=True))
    > len(lines) / 5
  )
  for symbol in vocabulary.symbols.values():
    assert [ids.count(symbol) for ids in drawn] == [ids.count(symbol) for ids in plain]
  assert cut(vocabulary, lines, 0.1, side=1) == drawn
  assert cut(vocabulary, lines, 0.1, order=slice(None, None, -3)) == drawn[::-3]


def test_cuts_are_as_frequent_as_those_of_sentencepiece(vocabulary):
  text, draws = 'wet rocks', 3_000
  ours = collections.Counter(
    tuple(ids[:-1]) for ids in cut(vocabulary, [text] * draws, 0.4)
  )
  processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model_bytes)
  theirs = collections.Counter(
    tuple(processor.encode(text, enable_sampling=True, alpha=0.4, nbest_size=-1))
    for _ in range(draws)
  )
  assert len(ours) >= 8
  for ids in ours | theirs:
    assert abs(ours[ids] - theirs[ids]) < 6 * np.sqrt(ours[ids] + theirs[ids]), ids


def test_what_cannot_be_sampled_is_refused(vocabulary):
  for alpha in (0, -1, 1.1, float('nan')):
    with pytest.raises(UserError, match='must be above 0 and at most 1; got'):
      sample_cuts(None, vocabulary, alpha)
  with pytest.raises(
    UserError, match=r'for one of the kind bpe, set --config\.data\.bpe_dropout'
  ):
    sample_cuts(None, Vocabulary.train(TEXT, SIZE), 0.1)


@pytest.mark.long
def test_a_vocabulary_of_another_kind_is_refused_by_a_check_too(
  train, folder, tmp_path
):
  assert 'kind unigram; the run has another' in train.refuses_alike(
    f'--config={folder}/tiny.py',
    f'--workdir={tmp_path}/run',
    "--config.data.variations=(('transformer.tools.subwords:sample_cuts', 0.1),)",
  )
