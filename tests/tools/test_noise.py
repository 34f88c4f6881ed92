"""Noise changes a given fraction of sources, each as a function of the sentence and its key."""

import collections
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.batch import EOS_ID
from transformer.data.batches.shuffling import mix_bits
from transformer.data.config import DataConfig
from transformer.data.encoding import Sentences
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.tools.noise import misspelled, source_noise, title_cased

LINES = [
  "two dogs don't run through the wet grass",
  'a straße, ein ﬁsch',
  'é e\u0301 नमस्ते दुनिया',
  'x 1 2 3',
  ' spaces  around\tit ',
  'three men in red shirts climb one of the tall rocks',
]
TEXT = st.text(st.characters(exclude_categories=['Cs'], exclude_characters='\n'))


@pytest.fixture(scope='module')
def vocabulary():
  return Vocabulary.train(LINES * 5, 360)


def encoded(vocabulary, lines):
  return Sentences.from_lists([*ids, EOS_ID] for ids in vocabulary.encode_batch(lines))


def keys(count, seed=0):
  return np.stack(
    [mix_bits(np.arange(count, dtype=np.uint64) + np.uint64(1000 * seed))] * 2
  )


def said(vocabulary, sentences):
  return [vocabulary.decode(sentences[number]) for number in range(len(sentences))]


def test_fractions_of_the_sources_are_changed_and_no_target(vocabulary):
  lines = [LINES[0]] * 4000
  sentences = encoded(vocabulary, lines)
  augment = source_noise(None, vocabulary, 0.1, 0.2, 0.3)
  source, target = augment(sentences, sentences, keys(4000))
  assert target is sentences
  counts = collections.Counter(
    'upper'
    if line == LINES[0].upper()
    else 'title'
    if line == title_cased(LINES[0])
    else 'plain'
    if line == LINES[0]
    else 'misspelled'
    for line in said(vocabulary, source)
  )
  for kind, share in (
    ('upper', 0.1),
    ('title', 0.2),
    ('misspelled', 0.3),
    ('plain', 0.4),
  ):
    # Four standard deviations.
    assert abs(counts[kind] / 4000 - share) < 4 * (share * (1 - share) / 4000) ** 0.5


def test_noise_depends_only_on_text_and_key(vocabulary):
  lines = LINES * 20
  augment = source_noise(None, vocabulary, 0.2, 0.2, 0.5)
  whole = said(vocabulary, augment(encoded(vocabulary, lines), None, keys(120))[0])
  order = np.random.default_rng(0).permutation(120)[:50]
  some, _ = augment(
    encoded(vocabulary, [lines[i] for i in order]), None, keys(120)[:, order]
  )
  assert said(vocabulary, some) == [whole[i] for i in order]
  assert (
    said(vocabulary, augment(encoded(vocabulary, lines), None, keys(120, 1))[0])
    != whole
  )
  # Sentences without noise keep their pieces, and all lie end to end.
  assert np.array_equal(some.starts, np.cumsum(some.lengths) - some.lengths)
  assert some.starts[-1] + some.lengths[-1] == len(some.tokens)


@pytest.mark.parametrize('shares', [(0.5, 0.4, 0.2), (-0.1,), (0, 0, 1.1)])
def test_impossible_fractions_are_rejected(vocabulary, shares):
  with pytest.raises(UserError, match='at least 0, and sum to at most 1; got '):
    source_noise(None, vocabulary, *shares)


def test_placeholders_stay_as_they_are():
  own = Vocabulary.train(
    [f'{line} <ort>' for line in LINES] * 5,
    380,
    config=DataConfig(user_defined_symbols=('<ort>', 'zahl', 'zahlen')),
  )
  line = 'mandos zahlen<ort> <ort> zahl'
  for shares in ((1,), (0, 1), (0, 0, 1)):
    augment = source_noise(None, own, *shares)
    for text in said(own, augment(encoded(own, [line] * 40), None, keys(40))[0]):
      assert text.endswith(' zahlen<ort> <ort> zahl') and (
        text != line or shares[-1:] == (1,)
      )
  assert 'MANDOS zahlen<ort> <ort> zahl' in said(
    own, source_noise(None, own, 1)(encoded(own, [line]), None, keys(1))[0]
  )
  spaced = Vocabulary.train(
    LINES * 5, 380, config=DataConfig(user_defined_symbols=('▁zahl',))
  )
  assert said(
    spaced,
    source_noise(None, spaced, 1)(encoded(spaced, ['zahl mzahl zahl']), None, keys(1))[
      0
    ],
  ) == ['zahl MZAHL zahl']


def test_title_case_changes_first_letters_and_errors_need_two_letters():
  assert title_cased(LINES[0]) == "Two Dogs Don't Run Through The Wet Grass"
  assert title_cased(LINES[4]) == ' Spaces  Around\tIt '
  assert title_cased('McDonald iPhone') == 'McDonald IPhone'
  for text in (
    '',
    ' ',
    'a 1 b',
    '12 34',
    '¡!',
  ):  # They have no two letters side by side.
    assert misspelled(text, 7) == text


def test_all_kinds_of_errors_occur_within_words():
  lines = {misspelled('ab 12', int(key)) for key in keys(60)[0]}
  assert {'ba 12', 'b 12', 'aab 12'} <= lines
  assert all(line.endswith(' 12') for line in lines)
  replaced = {misspelled('abcd', int(key)) for key in keys(400)[0]}
  assert {'cbcd', 'aacd', 'abbd'} <= replaced


def test_one_word_in_ten_is_misspelled_and_at_least_one():
  for count, errors in ((1, 1), (10, 1), (11, 2), (40, 4)):
    text = ' '.join(['abcdef'] * count)
    changed = [
      sum(word != 'abcdef' for word in misspelled(text, int(key)).split())
      for key in keys(200)[0]
    ]
    assert max(changed) == errors and np.mean(changed) > 0.7 * errors


@given(text=TEXT | st.text('abe\u0301\u0302 '), key=st.integers(0, 2**64 - 1))
@settings(max_examples=100, deadline=None)
def test_errors_stay_in_the_script_and_part_no_letter_from_its_marks(text, key):
  noisy = misspelled(text, key)
  assert noisy == misspelled(text, key)
  assert set(noisy) <= set(text)
  assert [*filter(str.isspace, noisy)] == [*filter(str.isspace, text)]

  def marked(line):
    return {
      line[i - 1 : i + 1]
      for i in range(1, len(line))
      if unicodedata.category(line[i]).startswith('M')
    }

  assert marked(noisy) <= marked(text)
