"""Training joins lines that follow each other in a document, on both sides alike."""

import collections

import chex
import numpy as np
import pytest

from tests.data.batches.test_training_batches import recover
from transformer.data.batches.shuffling import mix
from transformer.data.config import DataConfig
from transformer.data.corpora import encode_corpora, open_corpora
from transformer.data.encoding import (
  differ_in_length,
  encode_in_memory,
  keep_for_training,
)
from transformer.data.vocabulary.vocabularies import SeparateVocabularies
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.tools.documents import paragraphs
from transformer.tools.documents.parts import cut

MAX_LENGTH = 53
WORDS = ['man', 'dog', 'red', 'shirt', 'hund', 'rot', 'hemd', 'läuft', 'runs', 'über']
LONG = ' '.join(WORDS * 5)
SPACES = ' ', ' '
SPEC = 'transformer.tools.documents:paragraphs'


def some_text(count, seed):
  """Returns pairs that differ, in documents; two are too long, and one is empty on one side."""
  rng = np.random.default_rng(seed)
  pairs = [
    tuple(
      f'{number} ' + ' '.join(rng.choice(WORDS, rng.integers(1, 5))) for _ in range(2)
    )
    for number in range(count)
  ]
  for number in range(7, count, 11):
    pairs[number] = ('', '')
  pairs[3:6] = (LONG, 'rot'), (f'dog {seed}', f'hund {seed}'), ('red', LONG)
  pairs[12] = ('', 'hemd')
  return pairs


PAIRS = some_text(71, seed=1)


@pytest.fixture(scope='module')
def vocabularies():
  return SeparateVocabularies(
    *(
      Vocabulary.train([pair[side] for pair in PAIRS] * 3, 300 + 7 * side)
      for side in range(2)
    )
  )


def settings_of(**changes):
  return DataConfig(
    **{
      'source_language': 'en',
      'target_language': 'de',
      'max_length': MAX_LENGTH,
      **changes,
    }
  )


@pytest.mark.parametrize('blank', [' ', '\t ', '\u00a0', '\u3000', '\u200b'], ids=ascii)
def test_every_blank_line_ends_a_document_in_training_as_in_scoring(
  vocabularies, blank
):
  written = [tuple(side or blank for side in pair) for pair in PAIRS]
  wanted, sides = (encode_in_memory(pairs, vocabularies) for pairs in (PAIRS, written))
  chex.assert_trees_all_equal(
    *([side.tokens for side in both] for both in (wanted, sides))
  )
  counts = [keep_for_training(*both, MAX_LENGTH).counts for both in (wanted, sides)]
  assert counts[0] == counts[1] and counts[1]['dropped: empty side']
  lines, others = ([source for source, _ in pairs] for pairs in (PAIRS, written))
  assert cut(others, vocabularies.source, MAX_LENGTH, 0) == cut(
    lines, vocabularies.source, MAX_LENGTH, 0
  )


def joins(pairs, first, vocabularies, most_lines, ratio, between):
  """Returns the pairs that a line may become: alone, and with one, two and more lines after it."""
  possible, tokens = [], np.ones(2, int)
  for stop, pair in enumerate(
    pairs[first : first + (most_lines or len(pairs))], first + 1
  ):
    sizes = np.array(
      [len(vocabularies[side].encode(text)) for side, text in enumerate(pair)]
    )
    tokens += sizes
    if (
      not all(pair)
      or max(tokens) > MAX_LENGTH
      or (ratio and differ_in_length(*(sizes + 1), ratio))
    ):
      break
    possible.append(
      tuple(
        between[side].join(line[side] for line in pairs[first:stop])
        for side in range(2)
      )
    )
  return possible


@pytest.mark.parametrize(
  ('most_lines', 'changes', 'between', 'longest'),
  [
    (0, {}, SPACES, 6),
    (3, {}, SPACES, 3),
    (0, {'max_length_ratio': 1.5}, SPACES, 5),
    (0, {'source_language': 'jpn_Jpan', 'target_language': 'de-CH'}, ('', ' '), 6),
  ],
  ids=str,
)
def test_a_line_becomes_every_paragraph_that_fits_and_no_other(
  vocabularies, most_lines, changes, between, longest
):
  data = settings_of(**changes)
  kept = keep_for_training(
    *encode_in_memory(PAIRS, vocabularies), MAX_LENGTH, data.max_length_ratio
  )
  vary = paragraphs(data, vocabularies, 1.0, most_lines)
  became = [set() for _ in range(len(kept))]
  for number in range(50):
    keys = mix(
      mix(np.arange(2 * len(kept), dtype=np.uint64).reshape(2, -1)) + np.uint64(number)
    )
    sides = vary(kept.source, kept.target, keys)
    for pair, texts in enumerate(became):
      ids = [side[pair].tolist() for side in sides]
      texts.add(tuple(vocabularies[side].decode(ids[side]) for side in range(2)))
      assert ids == [
        [*vocabularies[side].encode(vocabularies[side].decode(ids[side])), 2]
        for side in range(2)
      ]
  alone = [
    tuple(
      vocabularies[side].decode(sentences[pair])
      for side, sentences in enumerate((kept.source, kept.target))
    )
    for pair in range(len(kept))
  ]
  wanted = [
    joins(
      PAIRS, PAIRS.index(pair), vocabularies, most_lines, data.max_length_ratio, between
    )
    for pair in alone
  ]
  assert max(map(len, wanted)) == longest
  assert became == [set(possible[1:] or possible) for possible in wanted]


def test_a_share_of_the_lines_begins_paragraphs(vocabularies):
  pairs = [(f'{number}', f'{number}') for number in range(4000)]
  kept = keep_for_training(*encode_in_memory(pairs, vocabularies), MAX_LENGTH)
  keys = mix(np.arange(8000, dtype=np.uint64).reshape(2, -1))
  source, target = paragraphs(settings_of(), vocabularies, 0.25)(
    kept.source, kept.target, keys
  )
  longer = source.lengths > kept.source.lengths
  assert np.array_equal(longer, target.lengths > kept.target.lengths)
  assert 0.22 < np.mean(longer) < 0.28


def test_batches_hold_paragraphs_of_one_document_of_one_corpus(vocabularies, tmp_path):
  texts = {'one': PAIRS, 'two': some_text(30, seed=2)}
  for name, pairs in {**texts, 'valid': PAIRS[:3]}.items():
    for language, lines in zip(('en', 'de'), zip(*pairs, strict=True), strict=True):
      (tmp_path / f'{name}.{language}').write_text(
        ''.join(f'{line}\n' for line in lines), 'utf-8'
      )
  data = settings_of(
    source='text',
    dir=str(tmp_path),
    train=('one', 'two'),
    valid='valid',
    train_weights=(1, 2),
    shared_vocabulary=False,
    variations=((SPEC, 0.5), ('transformer.tools.subwords:bpe_dropout', 0.1)),
  )

  def batches():  # The second time, the tokens are read from the disk.
    return encode_corpora(
      data, open_corpora(data), vocabularies, 5 * MAX_LENGTH, 0
    ).batches

  first = batches()
  said = collections.Counter()
  for (source, target), times in recover(
    first[step] for step in range(first.real)
  ).items():
    said[vocabularies.source.decode(source), vocabularies.target.decode(target)] += (
      times
    )
  possible = {
    text: (name, number, lines)
    for name, pairs in texts.items()
    for number in range(len(pairs))
    for lines, text in enumerate(joins(pairs, number, vocabularies, 0, 0, SPACES), 1)
  }
  begun, joined = collections.Counter(), 0
  for text, times in said.items():
    name, number, lines = possible[text]
    begun[name, number] += times
    joined += times * (lines > 1)
  # In an epoch, each line begins a paragraph, or stands alone, as often as its corpus is used.
  assert begun == {
    (name, number): 1 + (name == 'two') for name, number, _ in possible.values()
  }
  assert 0.3 < joined / begun.total() < 0.6
  second = batches()
  for step in np.random.default_rng(0).permutation(3 * first.real):
    chex.assert_trees_all_equal(second[int(step)], first[int(step)])


def test_mistakes_are_one_line(vocabularies):
  for numbers in ((0.0,), (1.1,), (0.5, 1), (0.5, 2.5), (0.5, -2)):
    with pytest.raises(
      UserError,
      match='above 0 and at most 1, and the most lines of one, at least 2, or 0',
    ):
      paragraphs(settings_of(), vocabularies, *numbers)
  copies = encode_in_memory(PAIRS, vocabularies)
  with pytest.raises(UserError, match='must be the first of'):
    paragraphs(settings_of(), vocabularies, 0.5)(
      *copies, np.zeros((2, len(PAIRS)), np.uint64)
    )
