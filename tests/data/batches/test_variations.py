"""Variations of one's own are functions of a sentence and its key, or an error of one line."""

import numpy as np
import pytest

from transformer.data.batches.shuffling import mix
from transformer.data.batches.variations import own_variations
from transformer.data.encoding import Sentences
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError

LINES = ['two dogs run', 'a woman sits', 'wet grass'] * 200
KEYS = mix(np.arange(len(LINES), dtype=np.uint64))


@pytest.fixture(scope='module')
def vocabulary():
  return Vocabulary.train([*LINES, *map(str.upper, LINES)], 300)


def refuses_to_vary(vocabulary):
  return lambda side, sentences, keys: 1 // 0


def loses_sentences(vocabulary):
  return lambda side, sentences, keys: sentences.take(np.arange(3))


def said(vocabulary, settings, lines=LINES, keys=KEYS, side=0):
  sentences = Sentences.ended(vocabulary.encode_batch(lines))
  for vary in own_variations(settings, vocabulary):
    sentences = vary(side, sentences, keys)
  return [vocabulary.decode(sentences[number]) for number in range(len(sentences))]


def test_the_example_of_the_page_changes_a_share_of_the_sources(own_parts, vocabulary):
  some = ('my_variations:capitals', 0.3)
  lines = said(vocabulary, [some])
  changed = [line == plain.upper() for line, plain in zip(lines, LINES, strict=True)]
  assert {line.lower() for line in lines} == set(LINES) and 0.2 < np.mean(changed) < 0.4
  assert said(vocabulary, [some], side=1) == LINES
  assert said(vocabulary, [some], LINES[::-1], KEYS[::-1]) == lines[::-1]
  # The second time, other sentences are chosen.
  twice = [line.isupper() for line in said(vocabulary, [some, some])]
  assert 0.4 < np.mean(twice) < 0.6


@pytest.mark.parametrize(('setting', 'fact'), [
    ('no_module:f', 'the variation no_module:f cannot be imported'),
    ('my_variations:capitals', r'cannot be made with the numbers none: TypeError'),
    (f'{__name__}:refuses_to_vary', 'refuses_to_vary failed: ZeroDivisionError'),
    (f'{__name__}:loses_sentences', 'must return Sentences, as many as it got'),
])
def test_a_mistake_is_one_line_that_names_the_variation(own_parts, vocabulary, setting, fact):
  with pytest.raises(UserError, match=fact) as caught:
    said(vocabulary, [setting])
  assert '\n' not in str(caught.value)
